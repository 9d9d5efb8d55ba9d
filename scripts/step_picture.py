"""Draw the median step of a run: what each process did, and the critical path through them.

Usage: python scripts/step_picture.py RUN docs/images/step

Writes step-light.svg and step-dark.svg. `make pictures` runs the demo, and then this.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

import attrs
from gpuprof._analysis.path import Graph
from gpuprof._analysis.reading import read
from gpuprof._analysis.run import Process, Run, Step

LEFT, WIDTH, ROW, BAR, TOP = 136, 760, 40, 22, 34
"""Pixels: of the names, of the step, from row to row, of a bar, above the first row."""
NOTHING, WORK, WAIT = range(3)
LEAST_FOR_A_NAME = 62
"""Pixels."""


@attrs.frozen
class Colours:
    """What is drawn in which colour."""

    text: str
    faint: str
    work: str
    on_work: str
    wait: str
    path: str


THEMES = {
    "light": Colours("#1f2328", "#59636e", "#2a9d8f", "#ffffff", "#d8dee4", "#d1242f"),
    "dark": Colours("#e6edf3", "#9198a1", "#2a9d8f", "#ffffff", "#3d444d", "#ff7b72"),
}


@attrs.frozen
class Drawing:
    """A step, in columns of a pixel.

    Args:
        run: its run.
        step: what is drawn.
        processes: the rows, from the top.
    """

    run: Run
    step: Step
    processes: Sequence[Process]

    def column(self, time: int) -> float:
        """Where a time is, in pixels from the step's beginning."""
        return (time - self.step.start) * WIDTH / self.step.duration

    def columns(self, start: int, end: int) -> range:
        """The columns that an interval reaches into the middle of."""
        return range(max(0, round(self.column(start))), min(WIDTH, round(self.column(end))))

    def activity(self, process: Process) -> list[tuple[int, str]]:
        """In each column, what the process does, and the name of the innermost scope."""
        found = [(NOTHING, "")] * WIDTH
        spans, offset = process.ledger.spans, process.ledger.offset
        order = (spans["start"].astype("i8") - spans["end"]).argsort(kind="stable")
        for span in spans[order]:  # the longest first: those inside it are drawn over it
            place = int(process.places[span["place"]])
            kind = WAIT if self.run.waiting_places[place] else WORK
            name = self.run.places[place].name
            for column in self.columns(int(span["start"]) + offset, int(span["end"]) + offset):
                found[column] = kind, name
        return found

    def path(self, graph: Graph) -> list[int]:
        """In each column, the row on the critical path."""
        rows = {process.number: row for row, process in enumerate(self.processes)}
        found = [0] * WIDTH
        for stretch in graph.path(self.run.steps.index(self.step)):
            for column in self.columns(stretch.start, stretch.end):
                found[column] = rows[stretch.process]
        return found


def stretches(values: Sequence[object]) -> Iterator[tuple[int, int, object]]:
    """Equal values that follow each other: from, to, value."""
    begin = 0
    for value, same in groupby(values):
        end = begin + sum(1 for _ in same)
        yield begin, end, value
        begin = end


def svg(drawing: Drawing, colours: Colours) -> str:
    """The picture."""
    rows = len(drawing.processes)
    height = TOP + rows * ROW + 34
    made = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 12} {height}" '
            'font-family="system-ui, sans-serif" font-size="13">'
        )
    ]
    seconds = drawing.step.duration / 1e9
    made.append(
        f'<text x="{LEFT}" y="18" fill="{colours.text}">'
        f"step {drawing.step.number}: {seconds * 1e3:.0f} ms</text>"
    )
    made += _legend(colours)
    for row, process in enumerate(drawing.processes):
        made += _row(drawing, row, process, colours)
    made += _path(drawing.path(Graph(drawing.run)), colours)
    base = TOP + rows * ROW + 20
    for quarter in range(5):
        x = LEFT + quarter * WIDTH / 4
        anchor = "start" if quarter == 0 else "end" if quarter == 4 else "middle"
        made.append(
            f'<text x="{x:.0f}" y="{base}" text-anchor="{anchor}" fill="{colours.faint}">'
            f"{seconds * 250 * quarter:.0f} ms</text>"
        )
    return "\n".join([*made, "</svg>\n"])


def _legend(colours: Colours) -> Iterator[str]:
    x = LEFT + WIDTH - 285
    for name, colour, width in (
        ("works", colours.work, 75),
        ("waits", colours.wait, 75),
        ("critical path", colours.path, 0),
    ):
        thick = 5 if colour == colours.path else 12
        yield f'<rect x="{x}" y="{14 - thick / 2}" width="20" height="{thick}" fill="{colour}"/>'
        yield f'<text x="{x + 26}" y="18" fill="{colours.text}">{name}</text>'
        x += width + 20


def _row(drawing: Drawing, row: int, process: Process, colours: Colours) -> Iterator[str]:
    y = TOP + row * ROW
    middle = y + BAR / 2 + 4.5
    name = "driver" if process.role == "driver" else process.name
    yield f'<text x="0" y="{middle}" fill="{colours.text}">{escape(name)}</text>'
    activity = drawing.activity(process)
    for begin, end, kind in stretches([kind for kind, _ in activity]):
        if kind != NOTHING:
            colour = colours.work if kind == WORK else colours.wait
            yield (
                f'<rect x="{LEFT + begin}" y="{y}" width="{end - begin}" height="{BAR}" '
                f'fill="{colour}"/>'
            )
    for begin, end, what in stretches(activity):
        kind, scope = what  # type: ignore[misc]
        if kind != NOTHING and end - begin >= max(LEAST_FOR_A_NAME, 7.5 * len(scope)):
            ink = colours.on_work if kind == WORK else colours.faint
            yield (
                f'<text x="{LEFT + (begin + end) / 2:.0f}" y="{middle}" text-anchor="middle" '
                f'font-size="12" fill="{ink}">{escape(scope)}</text>'
            )


def _path(rows: Sequence[int], colours: Colours) -> Iterator[str]:
    points = []
    for begin, end, row in stretches(rows):
        y = TOP + row * ROW + BAR  # type: ignore[operator]
        points += [f"{LEFT + begin},{y}", f"{LEFT + end},{y}"]
        yield (
            f'<rect x="{LEFT + begin}" y="{y - 2.5}" width="{end - begin}" height="5" '
            f'fill="{colours.path}"/>'
        )
    yield (
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{colours.path}" '
        'stroke-opacity="0.3"/>'
    )


def median_step(run: Run) -> Step:
    """The step that figures may use whose duration is in the middle."""
    steps = sorted((run.steps[each] for each in run.usual), key=lambda step: step.duration)
    return steps[len(steps) // 2]


def main() -> None:
    """Parse, read, draw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    run = read(given.run)
    processes = sorted(run.processes, key=lambda p: (p.role != "driver", p.group, p.rank))
    drawing = Drawing(run, median_step(run), processes)
    for theme, colours in THEMES.items():
        path = given.picture.with_name(f"{given.picture.name}-{theme}.svg")
        path.write_text(svg(drawing, colours))


if __name__ == "__main__":
    main()
