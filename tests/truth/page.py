"""The page that says how often explain is right, written from the tables of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "how-often-it-is-right.md"
SHOWN = (
    "A cause to name, by its kind", "Reported causes, by grade", "All jobs",
)  # fmt: skip
"""The tables of the page; the command prints more."""
MARK = "<!-- below: make truth TRUTH=--page -->\n"


def write(seed: int, count: int, tables: Mapping[str, str]) -> None:
    """Replace everything below the page's mark."""
    head = PAGE.read_text().split(MARK)[0]
    command = f"```sh\nmake truth SEED={seed} COUNT={count}\n```\n"
    parts = [f"## {title}\n\n{table}\n" for title, table in tables.items()
             if title in SHOWN]  # fmt: skip
    PAGE.write_text(f"{head}{MARK}\n{command}\n" + "\n".join(parts))
