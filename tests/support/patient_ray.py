"""Starting Ray on a busy machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.waiting import wait_until


@contextmanager
def patient_start() -> Iterator[None]:
    """Give a node of Ray's the time that it needs to come up. Ray itself gives it 30 s.

    What it has started by then stays, and fails the tests after it as well. There is no setting.
    """
    from ray._private import services

    ask = services.get_node

    def get_node(*arguments: Any) -> Any:
        answers: list[Any] = []

        def answered() -> bool:
            try:
                answers.append(ask(*arguments))
            except RuntimeError:  # the node is not registered yet
                return False
            return True

        wait_until(answered, "up: a node of Ray's")
        return answers[0]

    services.get_node = get_node
    try:
        yield
    finally:
        services.get_node = ask
