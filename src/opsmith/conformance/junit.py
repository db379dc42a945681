"""Results as JUnit XML, which every CI system shows.

Written with the standard library: the format is four elements, and the packages that write it do not
take out what XML cannot hold, which operators' messages may have.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from opsmith.base.output_files import write_output
from opsmith.conformance.results import Results, Status, Verdict

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# JUnit's element for each status; a test that passed has none.
_ELEMENTS = {
    Status.FAILED: "failure",
    Status.UNEXPECTED_PASS: "failure",
    Status.TIMED_OUT: "error",
    Status.CRASHED: "error",
    Status.EXPECTED_FAILURE: "skipped",
    Status.SKIPPED: "skipped",
}


def write_junit(results: Results, path: Path) -> None:
    """Writes ``path``: a suite for each check, a case for each entry and dtype.

    Raises :class:`~opsmith.errors.OutputRejected`.
    """
    root = ElementTree.Element("testsuites", name=f"opsmith conform {results.backend}")
    suites: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in results.verdicts:
        suites[verdict.check.value].append(verdict)
    for name, verdicts in suites.items():
        root.append(_suite(name, verdicts))
    write_output(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _suite(name: str, verdicts: list[Verdict]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=name)
    counts = {"failure": 0, "error": 0, "skipped": 0}
    for verdict in verdicts:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"{name}.{verdict.entry}",
            name=verdict.dtype or verdict.entry,
            time=f"{verdict.seconds:.4f}",
        )
        if element := _ELEMENTS.get(verdict.status):
            counts[element] += 1
            message = _NOT_XML.sub("?", f"{verdict.status.value}: {verdict.message}")
            ElementTree.SubElement(case, element, message=message)
    suite.set("tests", str(len(verdicts)))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", str(counts["skipped"]))
    suite.set("time", f"{sum(verdict.seconds for verdict in verdicts):.3f}")
    return suite
