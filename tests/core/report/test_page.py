"""`gpuprof html`: what is on the page, and that names of users are text there."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gpuprof._analysis import reading
from gpuprof._analysis.run import Run
from gpuprof._analysis.scopes import spreads
from gpuprof._cli import main
from gpuprof._report import gantt, heat, page
from support import page_run, sample_run
from support.page_run import HOSTILE
from support.run_files import session_file
from support.simulated_pair import SimulatedJob
from support.simulated_run import SimulatedLedger, write_run

MS = 1_000_000


class Parsed(HTMLParser):
    """A page as a browser reads it.

    Args:
        content: the page.
    """

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.raw: dict[str, str] = {}
        self._inside = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self._inside = dict(attrs).get("type") or "script"

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("style", "script", "application/json"):
            self.raw[self._inside] = self.raw.get(self._inside, "") + data
        else:
            self.texts.append(data)

    @property
    def data(self) -> Any:
        """What the script draws."""
        return json.loads(self.raw["application/json"])


def gpuprof(*words: Any) -> Result:
    """A command, in this process."""
    return CliRunner().invoke(main, [str(word) for word in words])


def answer(*words: Any) -> Any:
    """The JSON that a command prints."""
    return json.loads(gpuprof(*words, "--json").stdout)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a slow rank, trees, a receipt, and names that are markup."""
    return page_run.write(tmp_path_factory.mktemp("runs") / "<i>run")


@pytest.fixture(scope="module")
def made(run: Path) -> Parsed:
    """Its page."""
    done = gpuprof("html", run)
    assert "open it in a browser" in done.output
    return Parsed((run / "page.html").read_text())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs, of which the second has a slower scope."""
    place = tmp_path_factory.mktemp("pair")
    slower = {("ActorGroup-1", "actor/backward"): 1.5}
    return (
        SimulatedJob(1, steps=40).write(place / "a"),
        SimulatedJob(3, slower=slower, steps=40).write(place / "b"),
    )


# Figures


def test_the_answer_is_that_of_explain(run: Path, made: Parsed) -> None:
    """All of it."""
    assert answer("explain", run) == made.data["runs"][0]["explain"]


def test_warm_up_can_be_given(run: Path, tmp_path: Path) -> None:
    """As for explain."""
    output = tmp_path / "page.html"
    assert 0 == gpuprof("html", run, "--warmup", 4, "-o", output).exit_code
    found = Parsed(output.read_text()).data["runs"][0]
    assert answer("explain", run, "--warmup", 4) == found["explain"]
    assert [1, 1, 1, 1, 0] == found["steps"]["state"][:5]


def test_a_steps_path_is_that_of_explain(run: Path, made: Parsed) -> None:
    """For any step that is drawn."""
    step = made.data["runs"][0]["gantt"]["steps"][7]
    (path,) = answer("explain", run, "--step", step["step"])["paths"]
    assert {**path, "why": step["path"]["why"]} == step["path"]


def test_steps_are_those_of_the_ledger(run: Path, made: Parsed) -> None:
    """Numbers and seconds."""
    steps = made.data["runs"][0]["steps"]
    expected = [(step.number, step.duration / 1e9) for step in reading.read(run).steps]
    assert expected == list(zip(steps["number"], steps["seconds"], strict=True))


def test_trees_are_those_of_report(run: Path, made: Parsed) -> None:
    """Calls, totals and extremes of each place, in the order of the tree."""

    def places(node: Any) -> Any:
        for child in node["children"]:
            name = page._cut(child["key"])
            yield [name, child["count"], child["total"], child["minimum"], child["maximum"]]
            yield from places(child)

    expected = {name: list(places(tree)) for name, tree in answer("report", run).items()}
    shown = made.data["runs"][0]["trees"]
    at = [shown["columns"].index(name) for name in ("name", "calls", "total", "min", "max")]
    actual = {
        tree["name"]: [[row[column] for column in at] for row in tree["rows"]]
        for tree in shown["trees"]
    }
    assert expected == actual


def test_the_scopes_open_on_the_group_that_bounds_a_step(made: Parsed) -> None:
    """And not on the driver, which waits for it."""
    run = made.data["runs"][0]
    assert run["explain"]["bounds"].startswith("RolloutGroup-1 ")
    assert "RolloutGroup" == run["trees"]["trees"][run["trees"]["first"]]["group"]


def test_the_diff_is_that_of_diff(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """All of it; the file is where it was wanted."""
    output = tmp_path / "both.html"
    assert 0 == gpuprof("html", *pair, "-o", output).exit_code
    found = Parsed(output.read_text()).data["diff"]
    expected = answer("diff", *pair)
    assert expected == {key: found[key] for key in expected}


def test_runs_that_cannot_be_compared_stand_side_by_side(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """The page has both, and why no condition is judged."""
    short = SimulatedJob(4, steps=10).write(tmp_path / "short")
    assert 0 == gpuprof("html", pair[0], short).exit_code
    found = Parsed((short / "compare.html").read_text()).data
    assert ["a", "short"] == [each["run"] for each in found["runs"]]
    assert "steps to compare, and 30 are needed" in found["diff"]["said"]


# Names are data


def test_names_make_no_element(made: Parsed) -> None:
    """Nothing but what the template has: no image, two scripts, one style."""
    tags = [tag for tag, _ in made.elements]
    counts = {tag: tags.count(tag) for tag in ("script", "style", "img", "i", "iframe")}
    assert {"script": 2, "style": 1, "img": 0, "i": 0, "iframe": 0} == counts


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_kept(made: Parsed, name: str) -> None:
    """In trees, charts and maps, as they were given."""
    run = made.data["runs"][0]
    assert name in {row[1] for tree in run["trees"]["trees"] for row in tree["rows"]}
    assert name in run["gantt"]["places"].values()
    (odd,) = (group for group in run["heat"]["groups"] if group["group"] == "Odd")
    assert name in odd["places"]


@pytest.mark.parametrize("name", HOSTILE[:3])
def test_names_are_text(made: Parsed, name: str) -> None:
    """In what the template writes."""
    assert any(name in text for text in made.texts)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_block_ends_no_element(name: str) -> None:
    """And is the same JSON."""
    drawn = {each: {"name": name} for each in page._DRAWN}
    block = page._block({"runs": [drawn], "diff": None})
    assert not set("<>&\u2028\u2029") & set(block)
    assert name == json.loads(block)["runs"][0]["explain"]["name"]


def test_no_attribute_but_ours_has_a_name(made: Parsed) -> None:
    """No handler, no style, and links into the page or the run's directory only."""
    allowed = ("#", "./")
    for _, attributes in made.elements:
        assert not [
            name for name in attributes if name.startswith("on") or name in ("style", "src")
        ]
        assert (attributes.get("href") or "#").startswith(allowed)


def test_the_policy_names_our_style_and_script(made: Parsed) -> None:
    """By their hashes; everything else is forbidden."""
    (policy,) = [
        about["content"]
        for tag, about in made.elements
        if tag == "meta" and about.get("http-equiv") == "Content-Security-Policy"
    ]
    hashes = {
        kind: base64.b64encode(hashlib.sha256(made.raw[kind].encode()).digest()).decode()
        for kind in ("style", "script")
    }
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{hashes['script']}'; "
        f"style-src 'sha256-{hashes['style']}'; base-uri 'none'; form-action 'none'"
    )


def test_a_name_that_is_too_long_is_cut() -> None:
    """It would make the page unreadable."""
    assert ("x" * 300, "x" * 299 + "…") == (page._cut("x" * 300), page._cut("x" * 301))


def test_secrets_stay_masked(made: Parsed) -> None:
    """As the manifest has them."""
    assert any("API_KEY=***" in text for text in made.texts)


def test_a_report_that_is_there_has_a_link(run: Path, tmp_path: Path) -> None:
    """From where the page is, whatever its name."""
    report = run / "node-0" / "A report #1.nsys-rep"
    report.write_bytes(b"")
    found = page.collect([str(run)], tmp_path / "page.html")["runs"][0]["receipt"]["rows"][0]
    report.unlink()
    assert found["link"].endswith("/node-0/A%20report%20%231.nsys-rep")
    assert "<" not in found["link"]


# What a run lacks


def test_each_section_says_why_it_is_empty(tmp_path: Path) -> None:
    """A run of two steps, without trees, reports, receipt or settings."""
    made = SimulatedLedger("A-0")
    made.span("work", 0, MS)
    made.step(0, 0, MS)
    made.step(1, MS, None)
    data = page.collect([str(write_run(tmp_path / "run", [made]))], tmp_path / "page.html")
    (run,) = data["runs"]
    assert "why" not in run["steps"]
    assert [] == [
        name
        for name in ("heat", "trees", "ranges", "receipt", "commands")
        if not run[name].get("why", "").endswith(".")
    ]
    assert "" == run["config"]
    page.render(data)


def test_a_run_without_ledgers_has_its_trees(tmp_path: Path, run: Path) -> None:
    """And the reason why there are no steps."""
    for file in run.rglob("*.json"):
        copy = tmp_path / run.name / file.relative_to(run)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    (found,) = page.collect([str(tmp_path / run.name)], tmp_path / "page.html")["runs"]
    assert "the key ledger" in found["steps"]["why"]
    assert found["trees"]["trees"]


def test_a_run_without_a_manifest_says_what_it_ran_on(tmp_path: Path) -> None:
    """From its other files, as its manifest will have it."""
    run = page_run.write(tmp_path / "run", steps=8)
    (with_one,) = page.collect([str(run)], tmp_path / "page.html")["runs"]
    (run / "manifest.json").unlink()
    (without,) = page.collect([str(run)], tmp_path / "page.html")["runs"]
    assert {"backend": "none", "workers": "6", "python": "3.11.2"}.items() <= dict(
        without["facts"]
    ).items()
    assert dict(with_one["facts"]).keys() == dict(without["facts"]).keys()
    assert "collect" in without["receipt"]["why"]


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    """There is no run."""
    done = gpuprof("html", tmp_path)
    assert (2, True) == (done.exit_code, "neither ledgers nor timing trees" in done.output)


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    """The page has the others, and the exit code is 1."""
    run = page_run.write(tmp_path / "run", steps=8)
    (run / "node-0" / "EnvGroup-0.start-1.ledger").write_bytes(b"x")
    done = gpuprof("html", run)
    assert 1 == done.exit_code
    assert "EnvGroup-0.start-1.ledger: ignored: not a ledger" in done.output
    assert (run / "page.html").exists()


def test_jinja2_that_is_missing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs it."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jinja2" else find(name)
    )
    done = gpuprof("html", run)
    assert (2, True) == (done.exit_code, "pip install jinja2" in done.output)


def test_a_page_that_cannot_be_written(run: Path, tmp_path: Path) -> None:
    """It names the file, and leaves nothing else."""
    done = gpuprof("html", run, "-o", tmp_path / "nowhere" / "page.html")
    assert (2, True) == (done.exit_code, "name another file: --output" in done.output)


# Bounds


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """72 workers on nine nodes with 50 places each, of which worker 33 is slow in one."""
    made = []
    for rank in range(72):
        worker = SimulatedLedger(f"A-{rank}", node=f"node-{rank // 8}")
        for step in range(4):
            at = step * 200 * MS
            worker.step(step, at, at + 199 * MS)
            for place in range(50):
                took = MS + (60 * MS if (rank, place) == (33, 7) else 0)
                worker.span(f"p{place}", at, at + took)
                at += took
        made.append(worker)
    return reading.read(write_run(tmp_path_factory.mktemp("wide") / "run", made), warm_up=0)


def test_a_large_group_is_folded_by_node(wide: Run) -> None:
    """A node shows the worker there that is farthest from the median."""
    (found,) = heat.heat_maps(wide)
    assert (True, 9, heat.MOST_PLACES) == (found.folded, len(found.rows), len(found.places))
    column = [wide.places[place].name for place in found.places].index("p7")
    assert ("node-4", "A-33", 0.061) == (
        found.rows[4].name,
        found.rows[4].whose[column],
        found.rows[4].seconds[column],
    )
    assert 0.001 == found.median[column]


def test_a_picture_has_those_on_the_path(wide: Run) -> None:
    """Of more workers than fit."""
    path = page.Explainer(wide).record.stretches(0)
    rows = gantt.rows(wide, 0, path)
    assert gantt.MOST_ROWS - 4 < len(rows) <= gantt.MOST_ROWS
    on_path = {part.process for part in path}
    assert on_path == {row.process for row in rows[: len(on_path)]}


def test_scopes_are_cut_at_the_steps_edges(tmp_path: Path) -> None:
    """Start and length count from the step's beginning."""
    made = SimulatedLedger("A-0")
    made.span("around", 0, 30 * MS)
    made.span(("around", "inside"), 12 * MS, 25 * MS)
    made.fold(("around", "often"), 12 * MS, 18 * MS, 5, 2 * MS)
    for step in range(3):
        made.step(step, step * 10 * MS, (step + 1) * 10 * MS)
    run = reading.read(write_run(tmp_path / "run", [made]), warm_up=0)
    (row,) = gantt.rows(run, 1, [])
    names = [(run.places[place].path, *rest) for place, *rest in row.spans]
    assert [("around", 0, 0, 10 * MS), ("around/inside", 1, 2 * MS, 8 * MS)] == names
    ((_, depth, start, length, count, busy),) = row.folds
    assert (1, 2 * MS, 6 * MS, 5, 2 * MS) == (depth, start, length, count, busy)


def test_many_steps_have_fewer_bars(tmp_path: Path) -> None:
    """Each is the slowest of several; the slowest of all is there, and its scopes are."""
    made = SimulatedLedger("A-0")
    now = 0
    for step in range(4500):
        took = MS * (9 if step == 3001 else 1 + step % 3)
        made.span("work", now, now + took)
        made.step(step, now, now + took)
        now += took
    data = page.collect([str(write_run(tmp_path / "run", [made]))], tmp_path / "page.html")
    (run,) = data["runs"]
    assert 1500 == len(run["steps"]["number"])
    assert 3001 == run["steps"]["number"][run["steps"]["longest"]]
    assert 3001 in [step["step"] for step in run["gantt"]["steps"]]
    assert page._MOST_DRAWN == len(run["gantt"]["steps"])


def test_percentiles_are_of_a_worker_in_a_step(tmp_path: Path) -> None:
    """Of the steps that count, all calls of a step together."""
    made = SimulatedLedger("A-0")
    for step in range(5):
        begin = step * 100 * MS
        made.step(step, begin, begin + 100 * MS)
        for call in range(2):
            at = begin + call * 40 * MS
            made.span("work", at, at + (step + 1) * MS)
    run = reading.read(write_run(tmp_path / "run", [made]), warm_up=0)
    assert {("A", 0): (0.006, pytest.approx(0.0096))} == spreads(run)


def test_percentiles_are_those_of_explain(tmp_path: Path) -> None:
    """Of the scope in a tree, by its group and path."""
    directory = SimulatedJob(1, steps=40).write(tmp_path / "run")
    tree = page_run.tree({"actor/backward": 1.0})
    about = session_file(name="ActorGroup-0", run="run", group="ActorGroup", timing=tree)
    (directory / "node-0" / "ActorGroup-0.start-1.json").write_text(json.dumps(about))
    (run,) = page.collect([str(directory)], tmp_path / "page.html")["runs"]
    (shown,) = (dict(zip(run["trees"]["columns"], each, strict=True)) for each in rows_of(run))
    scopes = answer("explain", directory)["scopes"]
    (said,) = (each for each in scopes if each["scope"] == "actor/backward")
    assert (said["p50"], said["p95"]) == (shown["p50"], shown["p95"])


def rows_of(run: Any) -> list[Any]:
    """The rows of all trees of a page's run."""
    return [row for tree in run["trees"]["trees"] for row in tree["rows"]]


def test_the_page_is_not_larger_than_its_parts(made: Parsed, run: Path) -> None:
    """A small run has a small page."""
    assert (run / "page.html").stat().st_size < 2**20
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", (run / "page.html").read_text())


def test_samples_of_a_step_are_drawn_from_the_tail(tmp_path: Path) -> None:
    """With the moments at which most of them were done, and the workers that became idle."""
    directory = sample_run.write(tmp_path / "run", steps=4, workers=2, samples=4)
    (found,) = page.collect([str(directory)], tmp_path / "page.html")["runs"]
    step = found["samples"]["steps"][-1]
    trained = found["samples"]["names"].index("trained")
    ends = [
        max(sum(row["phases"][at + 2 : at + 4]) for at in before(row["phases"], trained))
        for row in step["rows"]
    ]
    assert (8, 8) == (step["count"], len(ends))
    assert sorted(ends, reverse=True) == ends
    assert step["done"] == sorted(step["done"])
    assert step["done"][-1] == max(worker[1][-1] for worker in step["workers"]) == ends[0]


def before(phases: list[int], trained: int) -> Iterator[int]:
    """Where the phases that come before training begin."""
    yield from (at for at in range(0, len(phases), 5) if phases[at] != trained)
