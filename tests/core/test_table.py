"""Tables of any content fit the screen, and lose nothing."""

from __future__ import annotations

import pytest
from gpuprof._table import labelled, screen, table
from hypothesis import given, settings
from hypothesis import strategies as st

cell = st.text("ab- /", max_size=120)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(cell, cell, cell), max_size=4), st.integers(40, 120))
def test_a_table_fits_and_has_every_letter(rows: list[tuple[str, str, str]], width: int) -> None:
    """No line is wider than the screen, and only spaces are lost in wrapping."""
    printed = table(rows, ["one", "two", "three"], width)
    assert [] == [line for line in printed.splitlines() if len(line) > width]
    body = "".join(printed.splitlines()[2:])
    assert [sum(row.count(letter) for row in map("".join, rows)) for letter in "ab/"] == [
        body.count(letter) for letter in "ab/"
    ]


def test_the_screen_is_at_least_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wider terminal is used; a narrower one breaks the lines itself."""
    for columns, expected in (("40", 80), ("132", 132)):
        monkeypatch.setenv("COLUMNS", columns)
        assert expected == screen()


def test_a_word_wider_than_the_screen_stays_whole() -> None:
    """A path can be copied."""
    assert "x" * 200 in labelled("  file  ", "a " + "x" * 200, width=80)
