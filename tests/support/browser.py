"""Opens a page in Chromium, offline, and notes what it complains of and asks for."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 120_000
"""Milliseconds that guard against a hang."""


def missing() -> str:
    """Why no page can be opened here; empty if one can."""
    if shutil.which("chromium") is None:
        return "Chromium is not on PATH (apt-get install chromium)"
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed (pip install playwright)"
    return ""


@attrs.define
class Opened:
    """An open page.

    Args:
        page: playwright's.
        complaints: what its console says, and its errors.
        requests: what it has asked for, but for itself.
        seconds: of the processor, that its thread took to read and draw it.
    """

    page: Any
    complaints: list[str] = attrs.field(factory=list)
    requests: list[str] = attrs.field(factory=list)
    seconds: float = 0.0

    def figures(self, within: str) -> list[float]:
        """The values of all figures in an element."""
        found = self.page.locator(f"{within} data").evaluate_all("all => all.map(e => e.value)")
        return [float(value) for value in found]

    def resize(self, width: int, height: int) -> None:
        """Give the window another size, and wait until the charts are drawn anew.

        playwright's own waiting evaluates text again and again, which the page's policy forbids.
        """
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.evaluate(
            """([width, patience]) => new Promise((done, fail) => {
                const begun = performance.now();
                const look = () => {
                    const chart = document.querySelector("#steps svg").getBoundingClientRect();
                    const around = document.querySelector("#steps .side").clientWidth;
                    if (innerWidth === width && Math.abs(chart.width - around) < 1) done();
                    else if (performance.now() - begun > patience) fail("not drawn anew");
                    else requestAnimationFrame(look);
                };
                look();
            })""",
            [width, PATIENCE],
        )

    def texts(self, selector: str) -> list[str]:
        """The texts of elements."""
        found: list[str] = self.page.locator(selector).all_inner_texts()
        return found


@contextmanager
def browser(profile: Path) -> Iterator[Any]:
    """A browser that is offline.

    Args:
        profile: an empty directory for its files.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(profile),
            executable_path=shutil.which("chromium"),
            args=ARGUMENTS,
            offline=True,
            viewport={"width": 1280, "height": 900},
            timeout=PATIENCE,
        )
        context.set_default_timeout(PATIENCE)
        try:
            yield context
        finally:
            context.close()


def open_page(context: Any, file: Path) -> Opened:
    """Open a page from its file, and wait until it is drawn."""
    made = Opened(context.new_page())
    address = file.absolute().as_uri()
    made.page.on("console", lambda message: made.complaints.append(message.text))
    made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
    made.page.on(
        "request",
        lambda request: request.url == address or made.requests.append(request.url),
    )
    session = context.new_cdp_session(made.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    made.page.goto(address)
    # the charts are drawn when their widths are known
    made.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    found = session.send("Performance.getMetrics")["metrics"]
    made.seconds = {each["name"]: each["value"] for each in found}["TaskDuration"]
    return made
