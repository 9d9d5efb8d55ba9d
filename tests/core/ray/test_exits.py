"""Which ends of workers were the job's, by what Ray has recorded of them."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

pytest.importorskip("ray")
from gpuprof.ray import _exits

OWNER, ACTOR = ("node", 1), ("node", 2)


@pytest.mark.parametrize(("owner_killed", "expected"), [(True, {OWNER, ACTOR}), (False, set())])
def test_an_actor_ends_as_its_owner_did(
    monkeypatch: pytest.MonkeyPatch, owner_killed: bool, expected: set[tuple[str, int]]
) -> None:
    """Whatever Ray calls the actor's own end: on a busy machine it may call it an error."""
    exits = {
        b"owner": _exits._Exit(OWNER, over=True, intended=owner_killed),
        b"actor": _exits._Exit(ACTOR, over=True, intended=False),
    }
    monkeypatch.setattr(_exits, "_exits", lambda nodes: exits)
    monkeypatch.setattr(_exits, "_actors", lambda: _exits._Actors({b"actor": b"owner"}))
    assert expected == _exits._ended_by_job(MagicMock(), {OWNER, ACTOR})


def test_an_actor_whose_process_ended_may_not_be_dead_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray records the end of the process first, and only then that its owner had crashed."""
    exits = {
        b"owner": _exits._Exit(OWNER, over=True, intended=False),
        b"actor": _exits._Exit(ACTOR, over=True, intended=True),
    }
    looks = iter([_exits._Actors(alive={b"actor"}), _exits._Actors({b"actor": b"owner"})])
    monkeypatch.setattr(_exits, "_exits", lambda nodes: exits)
    monkeypatch.setattr(_exits, "_actors", lambda: next(looks))
    assert set() == _exits._ended_by_job(MagicMock(), {OWNER, ACTOR})
