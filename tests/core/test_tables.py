"""Tables: one style, no wider than the terminal."""

from __future__ import annotations

import pytest
from gpuprof._tables import UNLIMITED, labelled, table

PATH = "/data/profiles/20261122-085642-ebcf70/gpu-07/ActorGroup-0.step-10.nsys-rep"


def test_short_rows_take_the_room_that_they_need() -> None:
    """Columns are two spaces apart; numbers stand at the right."""
    expected = """\
name   size
----  -----
a       1 B
b     100 B"""
    assert expected == table(["name", "size"], [("a", "1 B"), ("b", "100 B")], right=("size",))


def test_a_long_path_is_cut_at_its_start() -> None:
    """Its end tells files apart."""
    made = table(["file", "size"], [(PATH, "1 B")], shorten={"file": "start"}, width=40)
    assert "….step-10.nsys-rep" == f"…{made.splitlines()[2].split()[0][-17:]}"
    assert made.splitlines()[2].startswith("…")
    assert 40 == max(map(len, made.splitlines()))


def test_columns_are_left_out_in_the_given_order() -> None:
    """As many as needed, and the hint says which."""
    headers, row = ["name", "std", "min", "total"], ["n" * 20, "1" * 10, "2" * 10, "3" * 10]
    made = table(headers, [row], optional=("std", "min"), width=45, hint="--wide shows all.")
    assert ["name", "min", "total"] == made.splitlines()[0].split()
    assert "Left out: std. --wide shows all." == made.splitlines()[-1]


def test_a_long_text_stands_below_its_row() -> None:
    """Wrapped between words, and short texts of other rows stay where they are."""
    rows = [("A-0", ("complete", "")), ("A-1", ("missing", "word " * 20)), ("A-2", ("b", "c"))]
    lines = table(["worker", "state"], rows, width=40).splitlines()
    assert ["A-0     complete", "A-1     missing:"] == lines[2:4]
    assert 20 == " ".join(lines[4:-1]).split().count("word")
    assert "A-2     b: c" == lines[-1]
    assert 40 >= max(map(len, lines))


def test_without_a_limit_nothing_is_left_out_or_cut() -> None:
    """What `--wide` asks for."""
    made = table(
        ["file", "std", "state"],
        [(PATH, "1", ("missing", "word " * 40))],
        optional=("std",),
        shorten={"file": "start"},
        width=UNLIMITED,
        hint="--wide",
    )
    assert PATH in made
    assert "std" in made
    assert 3 == len(made.splitlines())


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS overrides it; without either it is 80."""
    rows = [(PATH * 2,)]
    monkeypatch.delenv("COLUMNS", raising=False)
    assert 80 == len(table(["file"], rows, shorten={"file": "start"}).splitlines()[-1])
    monkeypatch.setenv("COLUMNS", "60")
    assert 60 == len(table(["file"], rows, shorten={"file": "start"}).splitlines()[-1])


def test_a_word_wider_than_the_screen_stays_whole() -> None:
    """A path can be copied."""
    assert "x" * 200 in labelled("  file  ", "a " + "x" * 200, width=80)
