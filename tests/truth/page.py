"""The page that says how often explain is right, written from the tables of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "how-often-it-is-right.md"
MARK = "<!-- below: make truth TRUTH=--page -->\n"


def write(seed: int, count: int, large: int, tables: Mapping[str, str]) -> None:
    """Replace everything below the page's mark."""
    head = PAGE.read_text().split(MARK)[0]
    command = f"```sh\nmake truth SEED={seed} COUNT={count} TRUTH='--large {large}'\n```\n"
    parts = [f"## {title}\n\n{table}\n" for title, table in tables.items()]
    PAGE.write_text(f"{head}{MARK}\n{command}\n" + "\n".join(parts))
