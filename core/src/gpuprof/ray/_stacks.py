"""`gpuprof stacks` on the nodes that do not see the run's directory.

The driver sends the name of a question to all connected workers. The first worker of a node that
does not see the question's directory makes it in the run's directory there, asks the processes of
its node, and sends the answers to the driver.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress

from gpuprof._session.dump import QUESTION
from gpuprof._shim.safe import replacing
from gpuprof.errors import OutputError
from gpuprof.ray._channel import Channel
from gpuprof.ray._nodes import Nodes

_PATIENCE = 7.0
"""Seconds to wait for answers on another node. The asker waits for 10 s."""
_FILE = re.compile(r"\w[^/]*\.json")


class OtherNodes:
    """Takes the questions of `gpuprof stacks` to other nodes."""

    def __init__(self, channel: Channel, nodes: Nodes) -> None:
        self._channel = channel
        self._nodes = nodes

    def ask(self, directory: str) -> None:
        """Ask all connected workers a question, and answer for those of nodes that have died.

        Args:
            directory: the question's directory, which gets the answers.
        """

        def write(file: str, content: bytes) -> None:
            with suppress(OSError):  # the asker has gone
                if _FILE.fullmatch(file):
                    with replacing(os.path.join(directory, file), 0o600) as answer:
                        answer.write(content)

        self._channel.ask_nodes(os.path.basename(directory), write)
        for file, content in self._lost():
            write(file, content)

    def _lost(self) -> Iterator[tuple[str, bytes]]:
        from gpuprof._artifacts.dumps import Process, to_answer

        disconnected = self._channel.disconnected
        names_of_lost = self._nodes.lost() if disconnected else []
        for hello, when in list(disconnected.values()):
            if hello["node"] not in names_of_lost:
                continue  # another worker of its node knows more
            group, _, rank = hello["worker"].rpartition("-")
            process = Process(
                hello["worker"], group, int(rank), hello["node"], hello["pid"], None,
                hello["file"], "lost", {"time": when},
            )  # fmt: skip
            yield hello["file"], json.dumps(to_answer(process)).encode()


def ask_node(run_directory: str, question: str) -> Iterator[tuple[str, bytes]]:
    """Ask the processes of this node, unless they see the question or are asked already.

    Args:
        run_directory: the run's directory, as this node sees it.
    """
    # imported here, as most workers are never asked
    from gpuprof._artifacts.dumps import ask, to_answer

    if QUESTION.fullmatch(question):
        with suppress(FileExistsError, OutputError):
            for process in ask(run_directory, _PATIENCE, question):
                yield process.file, json.dumps(to_answer(process)).encode()
