"""A real Chromium for tests of pages: headless, with the console and the requests of each page recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from needs import CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Sandboxes need rights that containers lack; nothing but our own pages is opened.
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@dataclass
class Opened:
    """A page in the browser, what it wrote to the console, and what it asked the network for."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        """The visible text of the first element that ``selector`` finds, waiting for it."""
        return self.page.locator(selector).first.inner_text()

    def names(self, listing: str = "operators") -> list[str]:
        """The names in the rows of a listing that are in the page, from the top."""
        rows = self.page.locator(f"#{listing} .row [data-column=name]")
        return [text.strip() for text in rows.all_inner_texts()]

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser that downloads nothing."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(
    started: Browser,
    address: str,
    *,
    width: int = 1280,
    height: int = 900,
    scheme: Literal["light", "dark"] = "light",
    **settings: Any,
) -> Iterator[Opened]:
    """The page at ``address`` once it can be used; afterwards its console must be empty."""
    context = started.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, **settings
    )
    found = Opened(context.new_page())
    found.page.on("console", lambda message: found.console.append(message.text))
    found.page.on("pageerror", lambda error: found.console.append(str(error)))
    found.page.on("request", lambda request: found.requests.append(request.url))
    try:
        found.page.goto(address)
        found.page.wait_for_selector("html[data-ready]")
        yield found
        assert found.console == []
    finally:
        context.close()
