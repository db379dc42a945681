"""A document as one HTML page that needs nothing else: styles, scripts and data are inside.

The templates render what stays as it is while the page is open; the scripts what the reader changes.  The
page forbids itself any request to the network.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import jinja2
import msgspec
from markupsafe import Markup

from opsmith.observe.report.report_data import OPENING, OperatorColumns, ReportData
from opsmith.plan import Route

_ASSETS = Path(__file__).parent / "page"
# In this order: each script uses what those before it define.
SCRIPTS = (
    "data.js",
    "search.js",
    "elements.js",
    "filters.js",
    "table.js",
    "detail.js",
    "overview.js",
    "entries.js",
    "trend.js",
    "theme.js",
    "main.js",
)


def choices(operators: OperatorColumns) -> dict[str, dict[str, str]]:
    """The filters of the operators' table beside their routes: each value with its label."""
    strings = operators.strings
    columns = {
        "tag": Counter(strings[tag] for index in operators.tags for tag in operators.lists[index]),
        "variant": Counter(strings[index] for index in operators.variant),
        "gradient": Counter(strings[index] for index in operators.differentiable),
        "library": Counter(strings[index] for index in operators.library),
        "composite": Counter(strings[index] for index in operators.composite),
    }
    return {
        key: {value: f"{value} ({count:,})" for value, count in sorted(counted.items()) if value}
        for key, counted in columns.items()
    }


def render(document: ReportData) -> str:
    """The page of ``document``."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        document=document,
        written=document.written.replace("T", " ").replace("+00:00", " UTC"),
        choices=choices(document.operators),
        routes={route.value: route.value for route in Route},
        style=Markup(_asset("page.css")),
        script=Markup("\n".join(_asset(name) for name in SCRIPTS)),
        opening=Markup(OPENING),
        data=Markup(embeddable(document)),
    )


def embeddable(document: ReportData) -> str:
    """``document`` as JSON that may stand in a script element: no text of it can end the element."""
    return msgspec.json.encode(document).decode().replace("<", "\\u003c")


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
