"""Masks secrets in plans, manifests, and the rows sent to workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


def masked(environment: Mapping[str, str | None]) -> dict[str, str | None]:
    """`environment` with the values of secrets hidden.

    >>> masked({"WANDB_API_KEY": "abc", "MODE": "trace"})
    {'WANDB_API_KEY': '***', 'MODE': 'trace'}
    """
    return {
        name: "***" if is_secret(name) and value is not None else value
        for name, value in environment.items()
    }


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return bool(_SECRET.search(name))


def without_secrets(options: Any) -> Any:
    """The options with every secret masked."""
    if isinstance(options, dict):
        return {
            key: "***" if isinstance(value, str) and is_secret(key) else without_secrets(value)
            for key, value in options.items()
        }
    return options
