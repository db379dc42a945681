"""The report: one self-contained HTML page of what a backend does, and how it changed.

Inputs are gathered into a :class:`~opsmith.observe.report.report_data.Document`, plain values in columns; the
page embeds it, ``--data`` writes it, and a later report reads it back for its trend.
"""
