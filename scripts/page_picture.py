"""Take a picture of a page of `gpuprof html`.

Usage: python scripts/page_picture.py PAGE PICTURE [--size WIDTHxHEIGHT] [--dark] [--from SECTION]

The picture begins at the top of the page, or at a section. Height 0 is that of the whole page.
Needs Chromium (apt-get install chromium), and the package playwright, which drives it.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def main() -> None:
    """Parse, open, take."""
    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--size", default="1280x0")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--from", dest="section", default="")
    given = parser.parse_args()
    width, height = map(int, given.size.split("x"))
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as driver:
        browser = driver.chromium.launch_persistent_context(
            profile,
            executable_path=shutil.which("chromium"),
            args=ARGUMENTS,
            viewport={"width": width, "height": height or 900},
            color_scheme="dark" if given.dark else "light",
        )
        page = browser.new_page()
        page.goto(given.page.absolute().as_uri())
        page.wait_for_selector("#gantt svg, #gantt .why", state="attached")
        if given.section:
            page.evaluate("name => document.getElementById(name).scrollIntoView()", given.section)
        page.screenshot(path=str(given.picture), full_page=not height)
        browser.close()


if __name__ == "__main__":
    main()
