"""``opsmith driver check``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from opsmith.cli import options
from opsmith.cli.console import Json, err, fail, many, out, print_json, shown_progress
from opsmith.cli.options import flag
from opsmith.errors import OpsmithError
from opsmith.vendor.driver_check.checks import CHECKS
from opsmith.vendor.driver_check.model import Check, Finding, Report, Verdict
from opsmith.vendor.driver_check.running import Target, check_driver, chosen_checks
from opsmith.vendor.driver_check.targets import find_target

_MARKS = {
    Verdict.PASSED: "[green]ok[/]",
    Verdict.FAILED: "[bold red]failed[/]",
    Verdict.SKIPPED: "-",
}


def check(
    what: Annotated[
        str,
        typer.Argument(
            metavar="LIBRARY|CLASS|NAME|FILE",
            show_default=options.DEFAULT,
            help="A driver's library (libmychip.so), a class in Python (driver.py:Driver, module:Driver), a "
            "shipped backend, or a backend.yaml.",
        ),
    ] = "",
    named: options.NamedBackend = "",
    only: Annotated[
        list[str] | None, typer.Option("--check", metavar="NAME", help="Run this check only.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--time-limit", min=0.1, help="Seconds that a check may take.")
    ] = 60,
    show_all: Annotated[bool, flag("--all", "Show checks that passed, too.")] = False,
    list_them: Annotated[bool, flag("--list", "List the checks, and run none.")] = False,
    json: Json = False,
) -> None:
    """Check a driver against its contract, function by function, and say what PyTorch's users would notice.

    Each check has a process of its own: a driver that crashes or hangs fails that check only.
    The exit status is 1 where a check failed, and 2 where there is no driver to check.
    """
    if list_them:
        _list_checks(json)
        return
    try:
        checks = chosen_checks(only or ())
        with shown_progress() as progress:
            target = find_target(_chosen(what, named), progress)
    except OpsmithError as error:
        fail(error, status=2)
    with _shown(checks) as on_finding:
        report = check_driver(target, checks, seconds=seconds, on_finding=on_finding)
    if json:
        print_json({"ok": report.ok, "driver": report.driver, "checks": report.findings})
    else:
        _show(report, target, show_all)
    if not report.ok:
        raise typer.Exit(1)


def _chosen(what: str, named: str) -> str:
    if what and named:
        raise typer.BadParameter(f"the driver is named twice: {what} and --backend {named}")
    return what or named or options.default_backend()


def _list_checks(json: bool) -> None:
    if json:
        print_json([{"name": each.name, "promise": each.promise} for each in CHECKS])
        return
    table = Table(header_style="bold")
    table.add_column("check", no_wrap=True)
    table.add_column("what the contract promises", overflow="fold")
    for each in CHECKS:
        table.add_row(each.name, each.promise)
    out.print(table)


@contextmanager
def _shown(checks: tuple[Check, ...]) -> Iterator[Callable[[Finding], None]]:
    """A callback that shows on standard error how far it is."""
    if not err.is_terminal:
        yield lambda finding: None
        return
    done = 0
    with err.status("checking") as status:

        def show(finding: Finding) -> None:
            nonlocal done
            done += 1
            status.update(f"checked {done} of {1 + len(checks)}: {escape(finding.name)}")

        yield show


def _show(report: Report, target: Target, show_all: bool) -> None:
    where = target.python or target.library
    out.print(f"driver {escape(report.driver)}  {where}", highlight=False, soft_wrap=True)
    passed = [each for each in report.findings if show_all and each.verdict is not Verdict.FAILED]
    if passed:
        out.print(_table(passed))
    for cause, following in report.causes():
        out.print(_table([cause, *(following if show_all else ())]))
        if following:
            names = ", ".join(each.name for each in following)
            out.print(
                f"{many(len(following), 'check')} more failed that may follow from it, as they call all "
                f"that it calls: {names}",
                highlight=False,
                soft_wrap=True,
            )
    skipped = Counter(each.happened for each in report.findings if each.verdict is Verdict.SKIPPED)
    for reason, count in skipped.items():
        out.print(
            f"not made: {many(count, 'check')}, since {reason}", highlight=False, soft_wrap=True
        )
    said = f"{many(report.count(Verdict.PASSED), 'check')} passed"
    if not report.ok:
        said += f", {report.count(Verdict.FAILED):,} failed"
    out.print(said, highlight=False)


def _table(findings: list[Finding]) -> Table:
    table = Table(header_style="bold", show_lines=True)
    table.add_column("check", ratio=1)
    table.add_column("", no_wrap=True)
    table.add_column("what was found", overflow="fold", ratio=4)
    for each in findings:
        table.add_row(each.name, _MARKS[each.verdict], "\n".join(_found(each)))
    return table


def _found(finding: Finding) -> Iterator[str]:
    if finding.verdict is not Verdict.FAILED:
        yield escape(finding.happened or finding.promise)
        return
    yield f"[bold]promised[/]  {escape(finding.promise)}"
    yield f"[bold]expected[/]  {escape(finding.expected)}"
    yield f"[bold red]happened[/]  {escape(finding.happened)}"
    yield f"[bold]PyTorch[/]   {escape(finding.notice)}"
