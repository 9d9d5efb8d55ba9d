"""The table: everything that is known, and nothing that is not."""

from __future__ import annotations

import asyncio

import pytest
from gpuprof_timing import Timing
from support.manual_clock import Clock


def cells(table: str) -> dict[str, dict[str, str]]:
    """A table in tabulate's `tsv` format, by the row's name and the column's."""
    head, *rows = [[cell.strip() for cell in line.split("\t")] for line in table.splitlines()]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def test_the_table_has_everything(timing: Timing, clock: Clock) -> None:
    """Calls, total, mean, extremes, deviation and shares, in seconds and per cent."""
    for seconds in (1, 3):
        with timing.add_time("a"):
            clock.advance(seconds)
    clock.advance(4)
    expected = {
        "calls": "2",
        "total": "4.0000",
        "mean": "2.0000",
        "min": "1.0000",
        "max": "3.0000",
        "std": "1.0000",
    }
    assert {"a": {**expected, "% parent": "50.0", "% run": "50.0"}} == cells(timing.table("tsv"))


def test_the_table_shows_microseconds(timing: Timing, clock: Clock) -> None:
    """What four decimals would show as nothing."""
    for nanoseconds in (491, 1_509):
        with timing.add_time("a"):
            clock.advance(nanoseconds / 1e9)
    row = cells(timing.table("tsv"))["a"]
    assert ("2.00e-06", "1.00e-06", "4.91e-07", "1.51e-06") == tuple(
        row[column] for column in ("total", "mean", "min", "max")
    )


def test_a_format_that_does_not_exist(timing: Timing) -> None:
    """Tabulate itself would take its plainest one."""
    with pytest.raises(
        ValueError, match=r"^format: 'markdown' is not valid; expected .*github or "
    ):
        timing.table("markdown")


def test_the_table_says_what_is_not_in_the_children(timing: Timing, clock: Clock) -> None:
    """`(other)` makes the children's shares of their parent add up to all of it."""
    with timing.add_time("a"):
        with timing.add_time("b"):
            clock.advance(3)
        clock.advance(1)
    rows = {name.split(" ")[-1]: row for name, row in cells(timing.table("tsv")).items()}
    assert ("1.0000", "25.0", "25.0") == tuple(
        rows["(other)"][column] for column in ("total", "% parent", "% run")
    )
    assert "75.0" == rows["b"]["% parent"]


def test_the_table_has_no_other_where_children_have_it_all(timing: Timing, clock: Clock) -> None:
    """Nothing is said where nothing is left."""
    with timing.add_time("a"), timing.add_time("b"):
        clock.advance(3)
    assert "(other)" not in timing.table()


def test_concurrent_children_are_marked(timing: Timing, clock: Clock) -> None:
    """Parallel children mark their parent, without a negative rest."""

    async def child(key: str, event: asyncio.Event) -> None:
        with timing.add_time(key):
            await event.wait()

    async def main() -> None:
        event = asyncio.Event()
        with timing.add_time("gather"):
            tasks = [asyncio.create_task(child(key, event)) for key in "ab"]
            await asyncio.sleep(0)
            clock.advance(1)
            event.set()
            await asyncio.gather(*tasks)

    asyncio.run(main())
    table = timing.table()
    assert "gather ∥" == next(iter(cells(timing.table("tsv"))))
    assert "(other)" not in table
    assert "-1" not in table


def test_the_table_marks_what_is_open(timing: Timing, clock: Clock) -> None:
    """A scope that has not ended is counted as open and has its time so far."""
    with timing.add_time("a"):
        clock.advance(2)
        row = cells(timing.table("tsv"))["a"]
    assert "0" == row["calls"]
    assert "1" == row["open"]
    assert "2.0000" == row["total"]
    assert "" == row["mean"]
    assert "" == row["std"]


def test_the_table_leaves_out_columns_that_say_nothing(timing: Timing, clock: Clock) -> None:
    """Without open scopes, merged processes or a device, no column speaks of them."""
    with timing.add_time("a"):
        clock.advance(1)
    head = timing.table("tsv").splitlines()[0]
    assert [False] * 3 == [column in head for column in ("open", "device", "slowest")]


def test_the_table_shows_depth(timing: Timing, clock: Clock) -> None:
    """A child's name is indented, also in a format that trims its cells."""
    with timing.add_time("outer"), timing.add_time("middle"), timing.add_time("inner"):
        clock.advance(1)
    lines = timing.table("github").splitlines()[2:]
    assert sorted(
        set(
            positions := [
                line.index(key)
                for line, key in zip(lines, ("outer", "middle", "inner"), strict=True)
            ]
        )
    ) == (positions)


def test_keys_that_look_like_numbers_stay_as_they_are(timing: Timing, clock: Clock) -> None:
    """A key is text, also where all keys could be numbers."""
    for key in ("1e3", "2.50"):
        with timing.add_time(key):
            clock.advance(1)
    assert {"1e3", "2.50"} == set(cells(timing.table("tsv")))


def test_an_empty_tree_has_an_empty_table(timing: Timing) -> None:
    """A tree of nothing is no error."""
    assert {} == cells(timing.table("tsv"))
