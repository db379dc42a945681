"""The report in a real Chromium: as it looks, by mouse and by keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from chromium import Opened, browser, opened
from opsmith.base.cache_folder import cache_root
from opsmith.conformance.results import Results, Status
from opsmith.observe.report.gathering import Inputs, gathered
from opsmith.observe.report.page import render
from opsmith.observe.report.report_data import read_document
from opsmith.plan import plan_backend
from planted_results import (
    FAILS,
    planted_bench,
    planted_coverage,
    results_of_sim,
    with_routes,
    with_verdict,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Open = Callable[..., AbstractContextManager[Opened]]

COUNT = len(plan_backend("sim", cache_root()).entries)
OPERATORS = f"{COUNT:,} operators"


@pytest.fixture(scope="module")
def results() -> Results:
    return results_of_sim()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, results: Results) -> Path:
    """A page with everything in it, against an earlier report that differs in three places."""
    folder = tmp_path_factory.mktemp("page")
    conform, before, coverage, earlier, bench = (
        folder / f"{name}.json" for name in ("results", "before", "coverage", "earlier", "bench")
    )
    bench.write_bytes(msgspec.json.encode(planted_bench(2.6)))
    conform.write_bytes(msgspec.json.encode(results))
    fixed = with_verdict(results, replace(FAILS, status=Status.PASSED, message=""))
    before.write_bytes(msgspec.json.encode(fixed))
    coverage.write_bytes(msgspec.json.encode(planted_coverage()))
    old = gathered("sim", Inputs(conform=before))
    old = replace(old, operators=with_routes(old.operators, {"cumsum": "missing", "mm": "kernel"}))
    earlier.write_bytes(msgspec.json.encode(replace(old, benchmarks=planted_bench(2.0))))
    inputs = Inputs(conform=conform, coverage=coverage, bench=bench, against=earlier)
    now = gathered("sim", inputs, source_link="vscode://file{path}:{line}")
    page = folder / "report.html"
    page.write_text(render(now))
    return page


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def visit(chromium: Browser, report: Path) -> Callable[..., object]:
    """Opens the report at an address within it."""

    def at(hash: str = "", **settings: object) -> object:
        return opened(chromium, f"file://{report}{hash}", **settings)  # type: ignore[arg-type]

    return at


pytestmark = pytest.mark.needs("chromium")


# ---- what it shows


def test_the_overview(visit: Open, report: Path) -> None:
    document = read_document(report)
    with visit() as page:
        assert page.text("h1") == "sim"
        assert page.page.title() == "sim – opsmith report"
        bars = page.page.locator("#bars .bar").all_inner_texts()
        assert [bar.split()[0] for bar in bars] == ["ATen", "core", "OpInfo"]
        for route, number in document.coverage[0].routes.items():
            if number:
                assert f"{route} {number:,}" in " ".join(bars[0].split())
        cell = page.page.locator("#matrix td a[title^='forward, float32']")
        (score,) = (
            score for score in document.conformance.scores if score[:2] == ("forward", "float32")
        )
        assert cell.get_attribute("title") == (f"forward, float32: {score[2]} of {score[3]} pass")
        assert cell.inner_text() == f"{int(1000 * score[2] / score[3]) / 10:.1f}"
        cost = page.text("#cost")
        assert "in the device’s place for 703 ms of 1.1 s" in cost and "op: cumsum.out" in cost
        assert page.page.locator("#cost tbody tr").count() == 2 + 3
        bench = " ".join(page.text("#benchmarks tbody tr").split())
        assert bench == "variants add_, 4 elements 2.6 ±0 % 2 ±0 % µs 1.300 ≤ 1 missed"
        assert page.requests == [f"file://{report}"]


def test_the_page_may_ask_the_network_for_nothing(visit: Open, report: Path) -> None:
    text = report.read_text()
    assert "connect-src 'none'" in text and "default-src 'none'" in text
    markup = text[: text.index('<script type="application/json"')]
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', markup) == []


def test_only_rows_in_sight_are_in_the_page(visit: Open) -> None:
    with visit("#/operators") as page:
        assert page.text("#operators output") == OPERATORS
        assert len(page.names()) < 80
        assert page.page.locator("#operators .grid").get_attribute("aria-rowcount") == str(
            COUNT + 1
        )
        page.page.keyboard.press("End")
        page.page.evaluate(
            "rows = document.querySelector('.grid'), rows.scrollTo(0, rows.scrollHeight)"
        )
        page.page.wait_for_selector(f"#operators-{COUNT - 23}")
        assert len(page.names()) < 80


# ---- search, filters, order


def test_search_narrows_with_each_key(visit: Open) -> None:
    with visit() as page:
        page.press("/")
        counts = []
        for key in "add_.T":
            page.press(key)
            counts.append(int(page.text("#operators output").split()[0].replace(",", "")))
        assert counts == sorted(counts, reverse=True) and 1 < counts[-1] < 10
        assert page.names()[0] == "add_.Tensor"
        assert page.page.locator("#operators .row mark").first.inner_text() == "add_.T"
        page.press("Escape")
        assert page.text("#operators output") == OPERATORS


@pytest.mark.parametrize(
    ("text", "first", "said"),
    [
        ("aten::relu", "relu", f"of {OPERATORS}"),
        ("norm layer", "layer_norm", f"of {OPERATORS}"),
        ("lyrnorm", "layer_norm", "None has “lyrnorm” in its name;"),
        ("laier_norm", "layer_norm", "None has “laier_norm” in its name;"),
        ("no such operator at all", None, f"0 of {OPERATORS}"),
    ],
)
def test_what_a_search_finds(visit: Open, text: str, first: str | None, said: str) -> None:
    with visit("#/operators") as page:
        page.page.fill("#operators input[type=search]", text)
        assert said in page.text("#operators output")
        assert page.names()[:1] == ([first] if first else [])
        if first is None:
            assert page.text("#operators .nothing") == "None of the operators passes these filters."


def test_filters_are_kept_in_the_address(visit: Open, report: Path) -> None:
    document = read_document(report)
    wanted = [
        name
        for name, route, tags in zip(
            document.operators.name,
            document.operators.routes().values(),
            document.operators.tags,
            strict=True,
        )
        if route == "fallback"
        and "core" in [document.operators.strings[t] for t in document.operators.lists[tags]]
    ]
    with visit("#/operators") as page:
        page.page.locator("label.chip[data-route=fallback]").click()
        page.page.select_option("#operators [data-filter=tag]", "core")
        assert page.text("#operators output") == f"{len(wanted)} of {OPERATORS}"
        address = page.page.url
        assert address.endswith("#/operators?route=fallback&tag=core")
    with visit("#/operators?route=fallback&tag=core") as page:
        assert page.text("#operators output") == f"{len(wanted)} of {OPERATORS}"
        assert set(page.names()) <= set(wanted)
        page.page.click("#operators button[type=reset]")
        page.page.wait_for_selector("#operators button[type=reset]", state="hidden")
        assert page.text("#operators output") == OPERATORS


def test_filters_by_verdict(visit: Open) -> None:
    with visit("#/operators?verdict=failing&q=add.") as page:
        assert "add.Scalar" in page.names() and "addmm" not in page.names()
    with visit("#/entries?check=forward&dtype=float32&verdict=failing") as page:
        assert "add" in page.names("entries")
        assert page.text("#entries .row .verdict") == "0 / 1, 1 bad"


def test_columns_sort_in_both_directions(visit: Open) -> None:
    with visit("#/operators?tag=core") as page:
        by_name = page.names()
        head = page.page.locator("#operators [data-column=name][role=columnheader]")
        assert head.get_attribute("aria-sort") == "ascending"
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert page.names()[0] > by_name[0]
        page.page.click("#operators [data-column=tests] button")
        first = page.page.locator("#operators .row .verdict").first
        assert first.get_attribute("data-verdict") == "failing"
        page.page.click("#operators [data-column=route] button")
        assert page.page.locator("#operators .row .route").first.inner_text() == "kernel"


# ---- the details


def test_details_by_mouse(visit: Open) -> None:
    with visit("#/operators?q=add_.Tensor") as page:
        page.page.locator("#operators .row").first.click()
        assert page.text(".detail h3") == "add_.Tensor"
        detail = page.text("#operators .detail")
        assert "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1)" in detail
        assert "add_, 4 elements" in detail and "missed" in detail
        assert "wins: a kernel for this very key" in detail and "RegisterSim_" in detail
        assert page.page.url.endswith("#add_.Tensor")
        source = page.page.locator(".detail a[href^='vscode:']").get_attribute("href")
        assert source is not None
        assert re.fullmatch(r"vscode://file/.*/optimized/binary\.cpp:\d+", source)
        page.page.get_by_role("link", name="add.out").click()
        page.page.wait_for_selector(".detail h3:text-is('add.out')")
        page.page.go_back()
        page.page.wait_for_selector(".detail h3:text-is('add_.Tensor')")
        page.page.click(".detail .close")
        assert page.page.locator("#operators .detail").is_hidden()
        assert page.page.url.endswith("#/operators?q=add_.Tensor")


def test_details_by_keyboard(visit: Open) -> None:
    with visit() as page:
        page.press("/", *"relu", "ArrowDown")
        active = page.page.locator("#operators .row.active")
        assert active.inner_text().split()[0] == "relu"
        assert page.page.evaluate("document.activeElement.id") == "operators-rows"
        grid = page.page.locator("#operators-rows")
        assert grid.get_attribute("aria-activedescendant") == active.get_attribute("id")
        outline = page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.press("j", "j", "k", "Enter")
        second = page.names()[1]
        assert page.text(".detail h3") == second
        page.press("j")
        assert page.text(".detail h3") == page.names()[2]
        page.press("Escape")
        assert page.page.locator("#operators .detail").is_hidden()
        page.press("End")
        assert active.inner_text().split()[0] == page.names()[-1]
        page.press("?")
        assert page.page.locator("dialog#keys").is_visible()
        page.press("Escape", "3")
        page.page.wait_for_selector("#entries .row")


def test_a_link_leads_to_its_operator(visit: Open) -> None:
    with visit("#cumsum") as page:
        assert page.text(".detail h3") == "cumsum"
        assert page.page.locator("#operators .row.active").inner_text().split()[0] == "cumsum"
        detail = page.text("#operators .detail")
        assert "Before:" in detail and "missing" in detail
        assert "120 calls, 400 ms" in detail
        # The rows have scrolled to it, and not the page, of which screenshots show the top.
        assert page.page.evaluate("scrollY") == 0
        row = page.page.locator("#operators .row.active").bounding_box()
        assert row is not None and 0 < row["y"] < 900 - row["height"]
    with visit("#aten::nosuchthing") as page:
        assert page.text("#operators output") == f"0 of {OPERATORS}"


def test_text_of_the_data_is_never_markup(visit: Open) -> None:
    with visit("#/entries/add") as page:
        assert page.text("#entries .notes pre") == FAILS.message
        cell = page.page.locator("td[title^='forward, float32: failed']")
        assert cell.get_attribute("data-mark") == "f"


def test_the_trend(visit: Open) -> None:
    with visit("#/changes") as page:
        text = " ".join(page.text("#changes").split())
        assert "+1 operators on a better route −1 on a worse one +0 verdicts pass now" in text
        assert "Pass no more (1)" in text and "add forward float32 passed failed" in text
        assert "variants: add_, 4 elements 1 1.3 +30.0 %" in text
        assert "cumsum missing derived" in text and "mm kernel derived" in text


# ---- on any screen


def test_light_dark_and_the_switch(visit: Open) -> None:
    def brightness(page: Opened) -> float:
        red, green, blue = page.page.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number)"
        )[:3]
        return float(red + green + blue)

    with visit() as light, visit(scheme="dark") as dark:
        assert brightness(light) > 700 and brightness(dark) < 120
        assert dark.text("#theme-button") == "Theme: auto"
        dark.page.click("#theme-button")
        assert dark.text("#theme-button") == "Theme: light" and brightness(dark) > 700
        dark.press("t")
        assert dark.text("#theme-button") == "Theme: dark" and brightness(dark) < 120
        dark.page.reload()
        dark.page.wait_for_selector("html[data-ready]")
        assert dark.text("#theme-button") == "Theme: dark"


CONTRAST = """() => {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (color) => {
    probe.clearRect(0, 0, 1, 1); probe.fillStyle = color; probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data];
  };
  const light = (color) => {
    const [r, g, b] = rgb(color).slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = getComputedStyle(each).backgroundColor;
      if (rgb(color)[3] === 255) return color;
    }
    return "white";
  };
  const low = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.checkVisibility({ visibilityProperty: true })) continue;
    const [one, other] = [light(getComputedStyle(element).color), light(paper(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) low.add(`${element.tagName}.${element.className}: ${ratio.toFixed(2)}`);
  }
  return [...low];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", ["", "#cumsum", "#/entries/add", "#/changes"])
def test_text_stands_out_from_its_paper(visit: Open, scheme: str, place: str) -> None:
    with visit(place, scheme=scheme) as page:
        assert page.page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("place", ["", "#/operators", "#add_.Tensor", "#/entries/add", "#/changes"])
def test_a_phone_scrolls_in_one_direction(visit: Open, place: str) -> None:
    with visit(place, width=360, height=740, has_touch=True) as page:
        assert page.page.evaluate("document.documentElement.scrollWidth") == 360
        if "Tensor" in place:
            box = page.page.locator("#operators .detail").bounding_box()
            assert box is not None and (box["x"], box["width"]) == (0, 360)
            page.page.tap(".detail .close")
            assert page.page.locator("#operators .detail").is_hidden()


def test_it_prints_without_what_only_a_screen_needs(visit: Open) -> None:
    with visit("#/operators?q=relu") as page:
        page.page.emulate_media(media="print")
        assert page.page.locator("#operators input[type=search]").is_hidden()
        assert page.page.locator("nav").is_hidden()
        assert page.page.locator("#operators .row").first.is_visible()
        assert page.page.pdf()[:5] == b"%PDF-"
