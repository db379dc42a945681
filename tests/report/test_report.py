"""``opsmith report``: what is gathered, compared, written and refused; the page itself is another file's."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fork_server
from opsmith.base.cache_folder import cache_root
from opsmith.base.output_files import check_writable, write_output
from opsmith.conformance.results import Check, Results, Status, scores
from opsmith.description import read_backend
from opsmith.errors import FileMissing, Location, OpsmithError, OutputRejected, ResultsInvalid
from opsmith.observe.explain.explanation import dispatch_table
from opsmith.observe.explain.operators import dispatch_path
from opsmith.observe.explain.verdicts import is_named_for
from opsmith.observe.explain.verdicts import tested_by as named_operators
from opsmith.observe.report import operator_columns as report_operators
from opsmith.observe.report.gathering import Inputs, gathered
from opsmith.observe.report.operator_columns import inspect_backend
from opsmith.observe.report.page import embeddable, render
from opsmith.observe.report.report_data import ReportData, read_document
from opsmith.observe.report.sources import definitions
from opsmith.observe.report.verdict_table import as_markdown, verdict_table
from opsmith.plan import plan_backend
from opsmith.runtime import LoadedBackend
from planted_results import FAILS, results_of_sim, with_routes, with_verdict
from refusal import refusal

Describe = Callable[..., Path]


def command(*arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs ``opsmith``; what it printed."""
    done = fork_server.run([sys.executable, "-m", "opsmith", *arguments])
    assert done.returncode == status, done.stdout + done.stderr
    return done


@dataclass(frozen=True)
class Written:
    """A report of sim against an earlier one, with planted results, as the command wrote it."""

    page: Path
    data: Path
    earlier: Path
    results: Results
    answer: dict[str, Any]
    errors: str


@pytest.fixture(scope="module")
def results() -> Results:
    return results_of_sim()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, results: Results) -> Written:
    folder = tmp_path_factory.mktemp("report")
    conform = folder / "results.json"
    conform.write_bytes(msgspec.json.encode(results))
    earlier = folder / "earlier.json"
    before = folder / "before.json"
    fixed = with_verdict(results, replace(FAILS, status=Status.PASSED, message=""))
    before.write_bytes(msgspec.json.encode(fixed))
    command(
        "report", "--build", "-o", folder / "earlier.html", "--data", earlier, "--conform", before
    )
    old = read_document(earlier)
    old = replace(
        old, operators=with_routes(old.operators, {"cumsum": "missing", "mm.out": "fallback"})
    )
    earlier.write_bytes(msgspec.json.encode(replace(old, torch="2.12.0", sizes={"library": 7})))
    page, data = folder / "report.html", folder / "report.json"
    done = command(
        "report",
        "--build",
        "-o",
        page,
        "--data",
        data,
        "--conform",
        conform,
        "--against",
        earlier,
        "--json",
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    return Written(page, data, earlier, results, answer, done.stderr)


# ---- what a report holds


def test_the_command_says_what_it_wrote(written: Written) -> None:
    answer = written.answer
    assert list(answer) == [
        "page", "data", "bytes", "backend", "build", "torch", "operators", "conformance", "scores", "trend",
        "warnings",
    ]  # fmt: skip
    assert answer["bytes"] == written.page.stat().st_size < 3_000_000
    assert answer["operators"] == len(plan_backend("sim", cache_root()).entries) > 3000
    expected = scores(written.results.verdicts)
    assert {
        (check, dtype): (passed, total) for check, dtype, passed, total in answer["scores"]
    } == {(check.value, dtype): score for (check, dtype), score in expected.items()}


def test_the_page_and_the_data_hold_the_same_report(written: Written) -> None:
    assert read_document(written.page) == read_document(written.data)


def test_an_operator_has_its_facts_its_road_and_its_source(
    written: Written, sim: LoadedBackend
) -> None:
    operators = read_document(written.data).operators
    row = operators.name.index("add_.Tensor")

    def text(index: int) -> str:
        return operators.strings[index]

    assert operators.schema[row] == (
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
    )
    assert text(operators.route[row]) == "derived"
    assert [text(i) for i in operators.lists[operators.variants[row]]] == ["add.Tensor", "add.out"]
    stops = [
        (text(key), text(what), text(place))
        for (key, what), place in zip(
            operators.dispatch_paths[operators.dispatch_path[row]],
            operators.locations[row],
            strict=True,
        )
    ]
    assert stops == [
        (stop.key, stop.what, stop.location)
        for stop in dispatch_path(dispatch_table("aten::add_.Tensor"))
    ]
    symbol, shown, link = operators.sources[operators.source[row]]
    assert symbol == "opsmith::optimized::native::add_out"
    path, _, line = text(link).rpartition(":")
    assert shown == f"opsmith/kernels/optimized/binary.cpp:{line}"
    assert Path(path).read_text().splitlines()[int(line) - 1].startswith("Tensor& add_out(")


def test_the_coverage_counts_what_comes_to_the_cpu_in_parts(written: Written) -> None:
    document = read_document(written.data)
    aten, core, entries = document.coverage
    routes = [route for name, route in document.operators.routes().items() if "::" not in name]
    assert aten.total == len(routes) and aten.routes["fallback"] == routes.count("fallback")
    assert aten.routes["fallback"] < aten.on_cpu < aten.total
    assert core.name == "core ATen" and 100 < core.total < 300
    assert (entries.name, entries.total) == ("OpInfo entries", len(written.results.operators))
    assert sum(entries.routes.values()) == entries.total


def test_every_verdict_is_in_the_report(written: Written) -> None:
    conformance = read_document(written.data).conformance
    assert conformance is not None
    assert dict(conformance.verdicts()).items() >= {
        (("add", "forward", "float32"), "f"),
        (("add", "backward", "bool"), "s"),
    }
    assert sum(1 for _ in conformance.verdicts()) == len(written.results.verdicts)
    entry = conformance.entries.index("add")
    (message,) = (
        conformance.messages[text]
        for cell, text in conformance.notes[entry].items()
        if conformance.marks[entry][cell] == "f"
    )
    assert message == FAILS.message
    assert conformance.dtypes[:3] == ("float32", "float64", "bfloat16")


def test_each_operator_has_its_verdict(written: Written, tmp_path: Path) -> None:
    table = verdict_table(read_document(written.data))
    plan = plan_backend("sim", cache_root())
    assert [row.operator for row in table.operators] == list(plan.by_name)
    assert sum(table.totals.values()) == len(table.operators)
    row = {row.operator: row for row in table.operators}["add.Scalar"]
    counted = [
        verdict
        for entry, called in written.results.operators.items()
        if "add.Scalar"
        in named_operators(entry, [name for name in called if name in plan.by_name], plan)
        for verdict in written.results.verdicts
        if verdict.entry == entry and verdict.status is not Status.SKIPPED
    ]
    passed = [verdict for verdict in counted if verdict.status is Status.PASSED]
    assert (row.route, row.verdict) == (plan.by_name["add.Scalar"].route.value, "partial")
    assert row.checks["forward"] == tuple(
        sum(verdict.check is Check.FORWARD for verdict in part) for part in (passed, counted)
    )
    assert "float32" not in row.dtypes
    file = tmp_path / "verdicts.md"
    command(
        "report",
        "-o",
        tmp_path / "r.html",
        "--conform",
        written.data.with_name("results.json"),
        "--verdicts",
        file,
    )
    assert as_markdown(table) == file.read_text("utf-8")
    line = f"| `add.Scalar` | {row.route} | {row.computed} | partial | **"
    assert line in file.read_text("utf-8")


def test_a_device_on_which_everything_fails_fits_too(results: Results, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    verdicts = tuple(
        replace(verdict, status=Status.FAILED, message=f"{index} differs by a lot " * 50)
        for index, verdict in enumerate(results.verdicts)
    )
    path.write_bytes(msgspec.json.encode(replace(results, verdicts=verdicts)))
    document = gathered("sim", Inputs(conform=path))
    assert len(render(document).encode()) < 3_000_000
    assert document.conformance is not None
    messages = document.conformance.messages
    assert messages[0].startswith("0 differs by a lot 0") and messages[0].endswith(" …")
    assert messages[-1] == "the file of results says more"


@pytest.mark.parametrize(
    ("entry", "operator", "named"),
    [
        ("add", "add.Tensor", True),
        ("add", "add_.Tensor", True),
        ("add", "addmm", False),
        ("linalg.norm", "linalg_norm.ord_str", True),
        ("linalg.norm.subgradients_at_zero", "linalg_norm", True),
        ("div.floor_rounding", "div.Tensor_mode", True),
        ("nn.functional.max_pool2d", "max_pool2d", True),
        ("nn.functional.max_pool2d", "max", False),
        ("max.reduction_with_dim", "max.dim", True),
        ("__radd__", "add.Tensor", False),
    ],
)
def test_what_an_entry_is_named_for(entry: str, operator: str, named: bool) -> None:
    assert is_named_for(entry, operator) is named


def test_where_kernels_are_defined(describe: Describe) -> None:
    path = describe()
    source = path.parent / "kernels.cpp"
    source.write_text(
        "namespace lib {\nvoid use() { add(1); }\n  void add(int);\n"
        "at::Tensor& add(at::Tensor& out) {\n}\nMAKE(neg, Floating)\nvoid later();\n}\n"
    )
    library = read_backend(path, None).libraries[0]
    found = definitions(library, ["lib::add", "lib::neg", "lib::later", "lib::other"])
    assert found == {"lib::add": Location(source, 4), "lib::neg": Location(source, 6)}


# ---- the trend


def test_the_trend(written: Written) -> None:
    trend = read_document(written.data).trend
    assert trend is not None and trend.source == str(written.earlier)
    assert [
        (each.operator, each.before, each.after, each.gained) for each in trend.route_changes
    ] == [("cumsum", "missing", "derived", True), ("mm.out", "fallback", "kernel", True)]
    (verdict,) = trend.verdict_changes
    assert (verdict.entry, verdict.check, verdict.dtype) == ("add", "forward", "float32")
    assert (verdict.before, verdict.after) == ("passed", "failed")
    (moved,) = (score for score in trend.scores if score[:2] == ("forward", "float32"))
    assert moved[4] == moved[2] - 1 and moved[5] == moved[3]
    ((name, before, now),) = trend.sizes
    assert (name, before) == ("library", 7) and now > 1_000_000
    assert dict((route, (was, is_now)) for route, was, is_now in trend.routes)["missing"] == (1, 0)


def test_against_itself_nothing_has_changed(written: Written, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    results.write_bytes(msgspec.json.encode(written.results))
    inputs = Inputs(conform=results, against=written.page)
    trend = gathered("sim", inputs).trend
    assert trend is not None
    assert trend.route_changes == trend.verdict_changes == ()
    assert trend.routes and all(before == now for _, before, now in trend.routes)


def test_inputs_of_other_versions_and_backends_are_warned_of(
    written: Written, tmp_path: Path, results: Results
) -> None:
    expected = f"the earlier report {written.earlier} was made with torch 2.12.0, and this one with"
    assert written.answer["warnings"] == [f"{expected} {written.answer['torch']}"]
    assert written.errors.startswith(f"warning: {expected}")
    other = tmp_path / "other.json"
    other.write_bytes(
        msgspec.json.encode(replace(results, backend="chip", torch="2.11.0", verdicts=()))
    )
    document = gathered("sim", Inputs(conform=other), tables=False)
    assert document.warnings == (
        f"the conformance results in {other} are for the backend `chip`, and this report is on `sim`",
        f"the conformance results in {other} were made with torch 2.11.0, and this report with "
        f"{document.torch}",
    )


# ---- bad input


def test_a_report_of_the_first_format(written: Written, tmp_path: Path) -> None:
    text = written.data.read_text(encoding="utf-8")
    text = (
        text.replace('"dispatch_paths":', '"roads":')
        .replace('"locations":', '"places":')
        .replace('"dispatch_path":', '"road":')
    )
    assert text.count('"format":2') >= 1
    earlier = tmp_path / "earlier.json"
    earlier.write_text(text.replace('"format":2', '"format":1'), encoding="utf-8")
    assert read_document(earlier).operators == read_document(written.data).operators


def test_a_report_of_a_newer_version(tmp_path: Path) -> None:
    newer = tmp_path / "newer.json"
    newer.write_text('{"format": 3, "operators": "in some other way"}')
    done = command("report", "-o", tmp_path / "r.html", "--against", newer, status=1)
    assert " ".join(done.stderr.split()) == (
        f"error: `{newer}` has format 3, and this opsmith reads a report up to format 2 "
        "remedy: update opsmith: pip install --upgrade opsmith"
    )
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "Input data was truncated"),
        (b"<html></html>", "JSON is malformed: invalid character (byte 0)"),
        (b"{}", "Object missing required field `format`"),
        (
            b'{"format": 1, "opsmith": "\xff"}',
            "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ),
        (b'{"format": 1}', "Object missing required field `opsmith`"),
    ],
)
def test_what_is_no_report(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_bytes(content)
    with pytest.raises(ResultsInvalid) as error:
        read_document(path)
    assert error.value.message == f"`{path}` does not hold a report: {message}"


@pytest.mark.parametrize("option", ["conform", "coverage", "bench", "against"])
def test_inputs_that_are_missing_or_broken(option: str, tmp_path: Path) -> None:
    path = tmp_path / "input.json"
    with pytest.raises(FileMissing, match=r"cannot be read from .*No such file or directory"):
        gathered("sim", Inputs(**{option: path}))
    path.write_text('{"format": 1, "verdicts": [')
    with pytest.raises(OpsmithError, match=r"input\.json"):
        gathered("sim", Inputs(**{option: path}))


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    done = command("report", "-o", tmp_path, status=1)
    assert " ".join(done.stderr.split()) == (
        f"error: `{tmp_path}` cannot be written: Is a directory "
        "remedy: name a file in a folder of yours"
    )
    lost = tmp_path / "no" / "report.json"
    done = command("report", "-o", tmp_path / "r.html", "--data", lost, status=1)
    assert f"`{lost}` cannot be written: No such file or directory" in done.stderr
    assert not (tmp_path / "r.html").exists()


def test_an_interrupted_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("yesterday's")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_output(path, b"today's")
    assert path.read_text() == "yesterday's"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_links_and_devices_stay_what_they_are(tmp_path: Path) -> None:
    target, link = tmp_path / "target.html", tmp_path / "link.html"
    link.symlink_to(target)
    write_output(link, b"page")
    assert link.is_symlink() and target.read_bytes() == b"page"
    with pytest.raises(OutputRejected, match="Is a directory"):
        write_output(tmp_path, b"page")


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with ThreadPoolExecutor(1) as readers:
        for path in (pipe, link):
            read = readers.submit(pipe.read_bytes)
            write_output(path, [b"page ", b"by page"])
            assert read.result(timeout=60) == b"page by page"
    assert pipe.is_fifo() and link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_device_is_written_in_place(tmp_path: Path) -> None:
    # Never the machine's own: what fails here may not cost it its /dev/null.
    sink, full = tmp_path / "null", tmp_path / "full"
    try:
        os.mknod(sink, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(full, stat.S_IFCHR | 0o666, os.makedev(1, 7))
        full.open("wb").close()
    except PermissionError:
        pytest.skip("making a device takes root")
    write_output(sink, b"page")
    assert refusal(OutputRejected, write_output, full, b"page") == (
        f"`{full}` cannot be written: No space left on device\n  remedy: name a file in a folder of yours"
    )
    assert sink.is_char_device() and full.is_char_device()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["full", "null"]


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    loop, dangling, socket_path = tmp_path / "loop", tmp_path / "dangling", tmp_path / "socket"
    loop.symlink_to(loop)
    dangling.symlink_to(tmp_path / "none" / "report.html")
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as bound:
        # The path of a socket is short.
        descriptor = os.open(tmp_path, os.O_RDONLY)
        bound.bind(f"/proc/self/fd/{descriptor}/socket")
        os.close(descriptor)
        for path, reason in [
            (tmp_path, "Is a directory"),
            (tmp_path / "none" / "report.html", "No such file or directory"),
            (tmp_path / "file" / "report.html", "No such file or directory"),
            (tmp_path / ("a" * 300), "File name too long"),
            (dangling, "No such file or directory"),
            (loop, "Too many levels of symbolic links"),
            (socket_path, "No such device or address"),
        ]:
            for refuse in (check_writable, lambda path: write_output(path, b"page")):
                assert refusal(OutputRejected, refuse, path) == (
                    f"`{path}` cannot be written: {reason}\n  remedy: name a file in a folder of yours"
                )
        assert socket_path.is_socket()
    assert loop.is_symlink() and dangling.is_symlink()


def test_what_becomes_a_pipe_meanwhile_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"

    def pieces() -> Iterator[bytes]:
        yield b"page"
        os.mkfifo(path)

    with pytest.raises(OutputRejected, match="become something else"):
        write_output(path, pieces())
    assert path.is_fifo() and [each.name for each in tmp_path.iterdir()] == ["report.html"]


# ---- what is kept in the cache


def test_a_changed_description_is_looked_at_anew(
    describe: Describe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))

    def route() -> str:
        backend = inspect_backend(str(path), tables=False)
        return backend.operators.routes()["relu"]

    path = describe()
    assert route() == "fallback"
    (record,) = (tmp_path / "cache" / "inspected").iterdir()
    assert route() == "fallback" and [*record.parent.iterdir()] == [record]
    record.write_bytes(record.read_bytes()[:1000])  # a damaged record is not trusted
    assert route() == "fallback"
    assert len(record.read_bytes()) > 1000
    describe("- {op: relu, kernel_name: chip::relu}")
    assert route() == "kernel"
    assert len([*record.parent.iterdir()]) == 2


def test_tables_that_this_process_may_have_changed_are_not_kept(
    sim: LoadedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = []
    monkeypatch.setattr(report_operators, "_read", lambda record: None)
    monkeypatch.setattr(report_operators, "_write", lambda *record: kept.append(record))
    found = inspect_backend("sim", tables=True)
    assert len(found.operators.dispatch_paths) > 10 and kept == []


# ---- without a browser


def test_a_backend_without_results(
    describe: Describe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    backend, page = describe(), tmp_path / "report.html"
    done = command("report", "-o", page, "--backend", backend, "--no-table")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{page}: 3,1") and " operators of chip, " in lines[0]
    assert (
        lines[1] == f"no conformance results of this build yet: opsmith conform --backend {backend}"
    )
    document = read_document(page)
    assert document.conformance is document.trend is None
    assert [each.name for each in document.coverage] == ["ATen", "core ATen"]
    assert document.operators.dispatch_paths == ((),)
    assert document.description == str(backend)


def test_no_text_of_the_data_ends_its_element(written: Written) -> None:
    document: ReportData = read_document(written.data)
    assert "<" not in embeddable(document)
    assert render(document).count("</script>") == 2
