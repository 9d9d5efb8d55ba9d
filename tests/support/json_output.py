"""The schemas of what the commands print with ``--json``, as the documentation has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def faults(name: str, output: Any) -> list[str]:
    """Where an output differs from its schema; a key that the schema lacks is a fault, too.

    Args:
        name: the schema's, such as ``explain``.
    """
    schema = _closed(json.loads((SCHEMAS / f"{name}.json").read_text()))
    return [
        f"{error.json_path}: {error.message}"
        for error in Draft202012Validator(schema).iter_errors(output)
    ]


def _closed(schema: Any) -> Any:
    """The schema without room for further keys, where it lists keys."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(part) for key, part in schema.items()}
    return {"additionalProperties": False, **closed} if "properties" in schema else closed
