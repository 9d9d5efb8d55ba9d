"""Write docs/keys.md: every key of a configuration, as it is declared.

Usage: python scripts/keys_page.py [--check].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import generated
from gpuprof._config.describe import Key, backend_keys, own_keys

PAGE = Path(__file__).parents[1] / "docs" / "keys.md"
BACKENDS = ("nsight", "rocprof_sys")
HEAD = """\
# Every key of a configuration

Look up what a key takes, its default, and what it does.
[Configuration](configuration.md) shows how the keys work together.

`gpuprof config explain KEY` prints one row in a terminal:

```sh
gpuprof config explain steps
```

```text
steps: Global steps to capture. null: each worker's whole life.
  takes    an integer of at least 0, a slice "start:stop" (stop exclusive), a
           list of these, or null
  default  null
  variable GPUPROF_STEPS
```

`gpuprof backends --options NAME` also lists the options of a backend's tool.
`gpuprof config validate FILE` checks a whole file.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, "\n## All backends\n", _table(own_keys(), with_variable=True)]
    for backend in BACKENDS:
        parts += [f"\n## `{backend}`\n", _table(_own_of(backend), with_variable=False)]
    return "".join(parts)


def _own_of(backend: str) -> list[Key]:
    """Without the tool's own keys: `gpuprof backends --options` lists those."""
    return [key for key in backend_keys(backend) if key.path.count(".") == 1]


def _table(keys: Sequence[Key], with_variable: bool) -> str:
    titles = ["key", "takes", "default", "what it does", *(["variable"] if with_variable else [])]
    rows = [titles, ["---"] * len(titles)]
    for key in keys:
        default = "required" if key.default is None else f"`{key.default}`"
        row = [
            f"`{key.path}`",
            key.takes,
            default,
            key.help,
            *([f"`{key.variable}`" if key.variable else ""] if with_variable else []),
        ]
        rows.append([cell.replace("|", "\\|") for cell in row])
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    generated.write(PAGE, page())
