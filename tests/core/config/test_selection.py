"""Steps, ranks and names: what their words select."""

from __future__ import annotations

from itertools import pairwise

import pytest
from gpuprof._config.selection import Integers, matches, windows
from gpuprof.errors import ConfigError
from hypothesis import given
from hypothesis import strategies as st

step = st.integers(0, 60)
entry = step | st.tuples(step, st.integers(1, 20)).map(
    lambda pair: f"{pair[0]}:{pair[0] + pair[1]}"
)


def model(entries: list[int | str]) -> set[int]:
    """What the entries mean, spelt out."""
    found: set[int] = set()
    for entry in entries:
        if isinstance(entry, int):
            found.add(entry)
        else:
            start, stop = map(int, entry.split(":"))
            found.update(range(start, stop))
    return found


@given(st.lists(entry))
def test_selection_is_the_union_of_its_entries(entries: list[int | str]) -> None:
    """Integers and slices, in any order, overlapping or not."""
    chosen = Integers.parse(entries)
    assert sorted(model(entries)) == list(chosen)
    assert [number in model(entries) for number in range(90)] == [
        number in chosen for number in range(90)
    ]


@given(st.lists(entry), st.booleans())
def test_windows_cover_each_step_once(entries: list[int | str], continuous: bool) -> None:
    """Each selected step is in one window; adjacent steps share one only when continuous."""
    made = windows(Integers.parse(entries), continuous)
    covered = [step for window in made for step in range(window.start or 0, window.stop or 0)]
    assert sorted(model(entries)) == covered
    assert list(range(1, len(made) + 1)) == [window.number for window in made]
    if continuous:
        assert all((before.stop or 0) < (after.start or 0) for before, after in pairwise(made))
    else:
        assert all(window.stop == (window.start or 0) + 1 for window in made)


@pytest.mark.parametrize(
    "wrong", [-1, True, 1.5, "a", "3", "5:3", "3:3", "-1:2", None, [1], "1:2:3", ":4"]
)
def test_what_is_not_a_step(wrong: object) -> None:
    """Each wrong entry is named by its position."""
    with pytest.raises(ConfigError) as caught:
        Integers.parse([0, wrong])
    assert caught.value.problems[0].startswith(f"[1]: {wrong!r} is not valid")


@pytest.mark.parametrize(
    ("name", "patterns", "expected"),
    [
        ("ActorGroup", ("actorgroup",), True),
        ("ActorGroup", ("Actor",), False),
        ("ActorGroup", ("Actor*",), True),
        ("ActorGroup", ("ALL",), True),
        ("ActorGroup", (), False),
        ("ActorGroup", None, False),
    ],
)
def test_names_match_by_wildcard(
    name: str, patterns: tuple[str, ...] | None, expected: bool
) -> None:
    """A name is not a prefix: the channel `Actor` is not the group `ActorGroup`."""
    assert expected == matches(name, patterns)
