"""Write docs/json.md: what the commands print with ``--json``, from the schemas in docs/schemas.

Usage: python scripts/json_page.py [--check].
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import generated

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "json.md"
SCHEMAS = DOCS / "schemas"
ORDER = (
    "explain", "top", "stacks", "diff", "report", "report-nvtx", "runs", "plan", "doctor",
    "backends",
)  # fmt: skip
HEAD = """\
# JSON output

What the commands print with `--json`, for scripts and agents.
`gpuprof --skill` tells an agent how to find out why a job is slow, and which claims to trust.
Each has a [JSON Schema](https://json-schema.org), and is tested against it.
A later release may add keys; `version`, where there is one, goes up if a key changes its meaning.
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(map(_section, ORDER))


def _section(name: str) -> str:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    rows = "".join(
        f"| `{key}` | {kind} | {text} |\n" for key, kind, text in _rows(schema, schema, "")
    )
    return (
        f"\n## `{schema['title']}`\n\n{schema['description']} [Schema](schemas/{name}.json).\n\n"
        f"| key | type | what it is |\n| --- | --- | --- |\n{rows}"
    )


def _rows(schema: Any, whole: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """Path, type and description of every key, the parts of a value below it."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    for key, part in schema.get("properties", {}).items():
        inner = f"{path}.{key}" if path else key
        again = "$ref" in part.get("items", {}) and path.endswith("[]")
        text = part.get("description", "")
        yield inner, _kind(part), "the same inside it" if again else text
        if not again:
            yield from _rows(part, whole, inner)
    if "items" in schema:
        yield from _rows(schema["items"], whole, f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _rows(schema["additionalProperties"], whole, f"{path}.NAME" if path else "NAME")


def _kind(schema: Any) -> str:
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value).strip(chr(34))}`" for value in schema["enum"])
    kinds = schema.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    words = [f"list of {_kind(schema['items'])}" if kind == "array" else kind for kind in kinds]
    return " or ".join(words).replace("list of object", "list").replace("list of any", "list")


if __name__ == "__main__":
    generated.write(PAGE, page())
