"""Starting Ray on a busy machine, without the processes that no test uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from support.waiting import wait_until


@contextmanager
def patient_start() -> Iterator[None]:
    """Start Ray nodes without the autoscaler and log monitors, and wait as long as a node needs.

    Ray itself gives up after 30 s; the processes that it has started by then stay, and fail later
    tests. The two monitors take half of a start. Ray has no setting for either.
    """
    from ray._private import services
    from ray._private.node import Node

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

    with (
        mock.patch.object(services, "get_node", get_node),
        mock.patch.object(Node, "start_monitor"),
        mock.patch.object(Node, "start_log_monitor"),
    ):
        yield
