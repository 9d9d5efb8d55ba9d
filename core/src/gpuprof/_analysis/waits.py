"""Which scopes wait, by their names: for ledgers whose scopes do not say so themselves."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping

BARRIER = "barrier"
"""All ranks of the own group meet here."""
ANYBODY = "*"
"""A scope waits, and nobody knows for whom."""
DATA = "data"
"""A scope waits for the next batch of data."""
NOTHING = "nothing"
"""A scope works, whatever its name says."""

DEFAULTS: Mapping[str, str] = {
    # RLinf, and workers that follow its names
    "rollout/recv_*": "EnvGroup",
    "env/recv_*": "RolloutGroup",
    "actor/recv_*": "RolloutGroup",
    # torch
    "*DataLoader*.__next__": DATA,
    "DataLoader.next": DATA,
    "*[:./]all_reduce": BARRIER,
    "*[:./]all_gather*": BARRIER,
    "*[:./]reduce_scatter*": BARRIER,
    # NeMo-RL and verl name what their drivers wait for, and the driver's calls have keys
    "*data_wait*": DATA,
    "*next_batch*": DATA,
    "*load_batch*": DATA,
    "*barrier*": BARRIER,
    "*/recv_*": ANYBODY,
    "recv_*": ANYBODY,
    "*/wait_*": ANYBODY,
    "wait_*": ANYBODY,
}
"""Names of scopes that RLinf, verl, NeMo-RL, Sample Factory and torch wait in, the first match
counts."""


COMMUNICATES = re.compile(
    r"(^|[^a-z])i?(send|recv|all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?all)($|[^a-z])"
)
"""Names of scopes around calls that may wait for another process before they return."""
READS_DEVICE = re.compile(r"\.(item|cpu|tolist)$|(^|[^a-z])synchroni[sz]e$")
"""Names of scopes around calls that may wait for the work which the host has queued on a device."""


class Waits:
    """Tells from a scope's name what it waits for.

    Args:
        patterns: shell wildcards over scopes' names, and whom they wait for: a worker group,
            `BARRIER`, `DATA` or `ANYBODY`; ``None`` for scopes that do not wait. They win over
            `DEFAULTS`.

    >>> waits = Waits({"*/pull": "EnvGroup", "*/recv_stats": None})
    >>> waits.of("actor/pull"), waits.of("actor/recv_stats"), waits.of("env/recv_actions")
    ('EnvGroup', None, 'RolloutGroup')
    >>> print(waits.of("env/step"))
    None
    """

    def __init__(self, patterns: Mapping[str, str | None]) -> None:
        self._configured = [(_compiled(pattern), whom) for pattern, whom in patterns.items()]
        defaults = ((_compiled(pattern), whom) for pattern, whom in DEFAULTS.items())
        self._patterns = [*self._configured, *defaults]
        self._known: dict[str, str | None] = {}

    def of(self, name: str) -> str | None:
        """What scopes of this name wait for; ``None`` if they work."""
        if name not in self._known:
            matching = (waits for pattern, waits in self._patterns if pattern.match(name))
            self._known[name] = next(matching, None)
        return self._known[name]

    def configured(self, name: str) -> str | None:
        """The same by the given patterns alone, for a scope that has said itself that it works."""
        return next((whom for pattern, whom in self._configured if pattern.match(name)), None)


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))
