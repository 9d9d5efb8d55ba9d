"""Starting Ray on a busy machine, with less than it starts for production."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from support.waiting import wait_until


@contextmanager
def patient_start() -> Iterator[None]:
    """Give a node of Ray's the time that it needs to come up. Ray itself gives it 30 s.

    What it has started by then stays, and fails the tests after it as well. There is no setting.
    Nor is there one for two processes that no test asks anything: the autoscaler's monitor, and
    what sends the lines of logs to drivers. They take half of a start.
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

    def nothing(node: Node) -> None:
        pass

    with (
        mock.patch.object(services, "get_node", get_node),
        mock.patch.object(Node, "start_monitor", nothing),
        mock.patch.object(Node, "start_log_monitor", nothing),
    ):
        yield
