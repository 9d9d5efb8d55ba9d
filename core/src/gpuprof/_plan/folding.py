"""Folds workers with equal rows, so that a plan of many ranks fits on a screen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import attrs

from gpuprof._plan.worker import PlannedWorker

RANK = "{rank}"
DIRECTORY = "{directory}"
"""Placeholder for the directory of the run's files on a node."""
_WORKER, _GROUP, _NODE = "{worker}", "{group}", "{node}"
_DIFFERENT = "…"
_DIGEST = "[0-9a-f]{12}"
_TOKEN = re.compile(rf"(?<![0-9a-z])({_DIGEST})(?![0-9a-z])|(\d+)")
"""Parts of a row that may differ between ranks: numbers, and hashes of names."""
_END = "\0"


@attrs.define
class Fold:
    """Workers whose rows differ only in group, rank and node.

    Args:
        members: the ranks of the workers, by group.
        tokens: the text of the first row in parts, with numbers and hashes at odd positions.
        varying: the positions of parts that differ between workers, with a placeholder for each.
    """

    first: PlannedWorker
    members: dict[str, list[int]]
    tokens: list[str]
    varying: dict[int, str] = attrs.field(factory=dict)

    def add(self, row: PlannedWorker) -> bool:
        """Add a worker if its row differs only in ranks and hashes. Return whether it was added."""
        tokens = _tokens(row)
        if len(tokens) != len(self.tokens):
            return False
        rank, of_first = str(row.worker.rank), str(self.first.worker.rank)
        varying = dict(self.varying)
        for position, (token, other) in enumerate(zip(self.tokens, tokens, strict=True)):
            if (token, other) == (of_first, rank) and (token != other or position in varying):
                varying[position] = RANK
            elif token == other and varying.get(position) != RANK:
                continue
            elif re.fullmatch(_DIGEST, token) and re.fullmatch(_DIGEST, other):
                varying[position] = _DIFFERENT
            else:
                return False
        self.varying = varying
        self.members.setdefault(row.worker.group, []).append(row.worker.rank)
        return True

    @property
    def name(self) -> str:
        """The names of the workers, such as ``ActorGroup-[0-7], EnvGroup-0``."""
        return ", ".join(f"{group}-{_ranges(ranks)}" for group, ranks in self.members.items())

    @property
    def row(self) -> PlannedWorker:
        """One row for all workers, with ``{rank}`` or ``…`` where their rows differ."""
        text = "".join(
            self.varying.get(position, token) for position, token in enumerate(self.tokens)
        )
        if len(self.members) == 1:
            group = self.first.worker.group
            ranks = self.members[group]
            rank = RANK if len(ranks) > 1 else str(ranks[0])
            text = text.replace(_WORKER, f"{group}-{rank}").replace(_GROUP, group)
        else:
            text = text.replace(_GROUP, "any of these groups")
        first, words = self.first, iter(text.split(_END))
        return attrs.evolve(
            first,
            reason=next(words),
            command=tuple(next(words) for _ in first.command),
            environment={
                name: None if value is None else next(words)
                for name, value in first.shown_environment.items()
            },
            files={number: next(words) for number in first.files},
            pattern=next(words),
            log=next(words),
        )


def fold(rows: Iterable[PlannedWorker]) -> list[Fold]:
    """Fold equal rows into one each, in the order of their first workers."""
    folds: list[Fold] = []
    alike: dict[object, list[Fold]] = {}
    for row in rows:
        worker = row.worker
        about = (
            row.profiled, worker.has_gpu, worker.discrete, worker.windows, row.notes,
            len(row.command), tuple(row.environment), len(row.files),
        )  # fmt: skip
        candidates = alike.setdefault(about, [])
        if not any(candidate.add(row) for candidate in candidates):
            new_fold = Fold(row, {worker.group: [worker.rank]}, _tokens(row))
            candidates.append(new_fold)
            folds.append(new_fold)
    return folds


def _tokens(row: PlannedWorker) -> list[str]:
    """Split a row's texts into parts, with numbers and hashes at odd positions.

    Placeholders replace the worker's name, group, node and directory first.
    """
    worker = row.worker
    reason = re.sub(rf" {re.escape(worker.group)}$", f" {_GROUP}", row.reason)
    texts = [
        *row.command,
        *(value for value in row.shown_environment.values() if value is not None),
        *row.files.values(),
        row.pattern,
        row.log,
    ]
    texts = [text.replace(worker.name, _WORKER) for text in texts]
    if worker.node != _NODE:
        texts = [text.replace(f"/{worker.node}/", f"/{_NODE}/") for text in texts]
    texts = [text.replace(worker.directory, DIRECTORY) for text in texts]
    parts: list[str] = []
    text = _END.join([reason, *texts])
    end = 0
    for match in _TOKEN.finditer(text):
        parts += [text[end : match.start()], match[0]]
        end = match.end()
    return [*parts, text[end:]]


def _ranges(ranks: Sequence[int]) -> str:
    """Ranks as ranges: ``0-3, 7``.

    >>> _ranges([3]), _ranges([0, 1, 2, 5]), _ranges([0, 8])
    ('3', '[0-2,5]', '[0,8]')
    """
    if len(ranks) == 1:
        return str(ranks[0])
    parts: list[str] = []
    begin = end = ranks[0]
    for rank in [*ranks[1:], None]:
        if rank == end + 1:
            end = rank
            continue
        parts += [f"{begin}-{end}"] if end > begin + 1 else map(str, range(begin, end + 1))
        begin = end = rank if rank is not None else end
    return f"[{','.join(parts)}]"
