"""Write the options of AMD's launchers into their page, as declared.

Usage: python scripts/options_page.py [--check].
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import generated

PAGE = Path(__file__).parents[1] / "docs" / "rocprof_sys.md"
MARK = "<!-- below: scripts/options_page.py -->\n"


def page() -> str:
    """The whole page, its table made anew."""
    command = [sys.executable, "-m", "gpuprof", "backends", "--options", "rocprof_sys", "--json"]
    declared = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    rows = []
    for option in declared:
        _, section, *inner = option["path"].split(".", 2)
        if section == "args" and inner:
            keys = ", ".join(f"`{name}`" for name in inner[0].split())
            since = f", from {option['since']}" if option["since"] else ""
            rows.append(
                f"| {keys} | {option['takes']} | {option['where']}{since} | {option['help']} |\n"
            )
    head = PAGE.read_text().split(MARK)[0]
    return (
        f"{head}{MARK}\n| in `args` | takes | launcher | what it does |\n| --- | --- | --- | "
        f"--- |\n{''.join(rows)}"
    )


if __name__ == "__main__":
    generated.write(PAGE, page())
