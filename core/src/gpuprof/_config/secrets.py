"""Masks values that may be secret in plans, manifests, and the rows sent to workers.

A harmless name may hold a secret. So every value that the user has set is masked, unless the
backend knows the variable.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import attrs

from gpuprof.backend import loading
from gpuprof.errors import PluginError

MASK = "***"
_SECRET = re.compile("KEY|TOKEN|SECRET|PASS|CREDENTIAL", re.IGNORECASE)
_ENVIRONMENT = "env"
_COMMANDS = ("finish_command",)


def masked(
    environment: Mapping[str, str | None], secret: Collection[str] = ()
) -> dict[str, str | None]:
    """`environment` with the values of secrets hidden.

    >>> masked({"WANDB_API_KEY": "abc", "MODE": "trace", "PROXY": "u:p@h"}, {"PROXY"})
    {'WANDB_API_KEY': '***', 'MODE': 'trace', 'PROXY': '***'}
    """
    return {
        name: MASK if value is not None and (name in secret or is_secret(name)) else value
        for name, value in environment.items()
    }


def is_secret(name: str) -> bool:
    """Whether the name alone says that the variable holds a secret, as ``API_KEY`` does."""
    return bool(_SECRET.search(name))


def secret_variables(options: Any) -> frozenset[str]:
    """Names of the variables set by the user that the backend does not know, or that are secret."""
    variables = getattr(options, _ENVIRONMENT, None)
    prefixes = _known_variables(type(options))
    return frozenset(
        name for name in variables or () if not name.startswith(prefixes) or is_secret(name)
    )


def without_secrets(settings: Any, backend: str) -> Any:
    """Settings or options with every secret masked.

    Args:
        backend: the backend's name. With a plugin's name, all variables are masked.
    """
    model = None
    with suppress(PluginError):
        model = loading.load_backend(backend, "backend").Options
    return _masked(settings, _known_variables(model), _COMMANDS)


def _masked(
    settings: Any, prefixes: tuple[str, ...], commands: tuple[str, ...], inside: str = ""
) -> Any:
    def hides(key: str) -> bool:
        unknown = inside == _ENVIRONMENT and not key.startswith(prefixes)
        return unknown or key in commands or is_secret(key)

    if isinstance(settings, dict):
        return {
            key: MASK
            if isinstance(value, str) and hides(str(key))
            else _masked(value, prefixes, commands, str(key))
            for key, value in settings.items()
        }
    return settings


def _known_variables(model: Any) -> tuple[str, ...]:
    """The prefixes of the backend's own variables."""
    fields = attrs.fields_dict(model) if model is not None and attrs.has(model) else {}
    field = fields.get(_ENVIRONMENT)
    return tuple(field.metadata.get("known", ())) if field is not None else ()
