"""What the scripts that write a page have in common: writing it, or checking it with --check."""

from __future__ import annotations

import sys
from pathlib import Path


def write(page: Path, text: str) -> None:
    """Write a page; with ``--check``, exit with an error if it is out of date."""
    if "--check" not in sys.argv:
        page.write_text(text)
    elif page.read_text() != text:
        sys.exit(f"{page} is not what {sys.argv[0]} writes: run it")
