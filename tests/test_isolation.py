"""The directories in which tests write."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from support import cluster
from support.isolation import own_place

SOCKET = "session_2026-11-24_03-28-17_123456_1234567/sockets/plasma_store"
"""The longest path that Ray puts into its directory."""


def test_rays_sockets_fit_below_any_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a socket has at most 107 bytes."""
    around = tmp_path / ("long" * 10)
    around.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(around))
    with own_place():
        assert len(f"{cluster.make()}/{SOCKET}") <= 107
