"""Pages of `gpuprof html` in Chromium, from a file and offline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gpuprof._cli import main
from gpuprof._report.words import duration
from support import browser, large_run, page_run, sample_run, stacked_run
from support.browser import Opened

pytestmark = pytest.mark.chromium
MIB = 2**20


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser that is offline."""
    with browser.browser(tmp_path_factory.mktemp("profile")) as context:
        yield context


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with names that are markup, and its page."""
    made = page_run.write(tmp_path_factory.mktemp("runs") / "run")
    assert 0 == CliRunner().invoke(main, ["html", str(made)]).exit_code
    return made


@pytest.fixture(scope="module")
def opened(run: Path, chromium: Any) -> Opened:
    """The page, which tests share."""
    return browser.open_page(chromium, run / "page.html")


@pytest.fixture(scope="module")
def data(opened: Opened) -> Any:
    """What its script has drawn."""
    return json.loads(opened.page.locator("#data").text_content())["runs"][0]


def test_nothing_is_asked_for_and_nothing_complains(opened: Opened) -> None:
    """Also not the policy."""
    assert ([], []) == (opened.requests, opened.complaints)
    assert "run · gpuprof" == opened.page.title()


def test_the_scopes_open_on_the_group_that_bounds_a_step(opened: Opened, data: Any) -> None:
    """Before anybody has chosen another one."""
    shown = opened.page.locator("#trees select").input_value()
    assert str(data["trees"]["first"]) == shown


def test_figures_of_the_verdict(opened: Opened, data: Any) -> None:
    """Those of `gpuprof explain --json`."""
    figures = opened.figures("#verdict")
    answer = data["explain"]
    expected = [answer["seconds"][key] for key in ("median", "least", "most")]
    expected += [found["saves"] for found in answer["findings"]]
    for group in answer["groups"]:
        idle = group["between_calls"]
        expected += [group["work"], group["waits"] + idle, group["outside"] - idle]
        expected += [group["imbalance"]] if group["workers"] > 1 else []
    assert [*expected, answer["confidence"]["explained"]] == figures


def test_a_click_chooses_a_step(opened: Opened, data: Any) -> None:
    """Its critical path is that of the JSON."""
    chart = opened.page.locator("#steps svg")
    count = len(data["steps"]["number"])
    inner = chart.bounding_box()["width"] - 60  # without the axis
    chart.click(position={"x": 52 + inner * 17.5 / count, "y": 100})
    assert ["17"] == opened.texts("#gantt data.step")
    step = data["gantt"]["steps"][data["steps"]["drawn"][17]]
    expected = [step["step"], step["path"]["seconds"]]
    for part in step["path"]["parts"]:
        expected += [part["seconds"], part["share"], part["steps"]]
    assert expected == opened.figures("#gantt")


def test_every_row_of_a_step_has_its_worker(opened: Opened, data: Any) -> None:
    """The driver, and all workers."""
    opened.page.locator("#gantt select").select_option("3")
    rows = data["gantt"]["steps"][3]["rows"]
    assert [row["worker"] for row in rows] == opened.texts("#gantt .labels div")
    assert opened.page.locator("#gantt .critical").count() > 5


def column(opened: Opened, number: int) -> list[str]:
    """A column of the table of scopes."""
    return opened.texts(f"#trees tbody tr > :nth-child({number})")


def test_the_table_sorts_and_searches(opened: Opened, data: Any) -> None:
    """By its headings; names are found as they are."""
    names = [tree["name"] for tree in data["trees"]["trees"]]
    group = names.index("RolloutGroup, 2 processes")
    opened.page.locator("#trees select").select_option(str(group))
    heading = opened.page.locator("#trees th button", has_text="total")
    heading.click()
    tree = data["trees"]["trees"][group]
    totals = sorted((row[3] for row in tree["rows"]), reverse=True)
    assert [duration(total / 1e9) for total in totals] == column(opened, 3)
    heading.click()
    assert [duration(total / 1e9) for total in reversed(totals)] == column(opened, 3)
    heading.click()
    opened.page.locator("#trees input").fill("</SCRIPT>")
    assert [page_run.HOSTILE[0]] == column(opened, 1)
    opened.page.locator("#trees input").fill("no such scope")
    assert [] == column(opened, 1)
    opened.page.locator("#trees input").fill("")
    assert [row[2] for row in tree["rows"]] == [int(calls) for calls in column(opened, 2)]


def test_workers_sort_by_a_scope(opened: Opened, data: Any) -> None:
    """The one that is farthest above the median comes first."""
    group = data["heat"]["groups"][-1]
    place = next(at for at, path in enumerate(group["places"]) if path.endswith("rollout/predict"))
    table = opened.page.locator("#heat table").last
    table.locator("thead button").nth(place).click()
    assert "RolloutGroup-1" == table.locator("tbody th").first.inner_text()
    assert {str(value) for row in group["rows"] for value in row["seconds"]} == set(
        table.locator("td").evaluate_all("all => all.map(e => e.dataset.seconds)")
    )


@pytest.mark.parametrize("name", page_run.HOSTILE)
def test_names_are_text(opened: Opened, name: str) -> None:
    """On the heading of a column, and in the title of the page's tab nothing."""
    titles = opened.page.locator("#heat th button").evaluate_all("all => all.map(e => e.title)")
    assert name in titles
    assert "run · gpuprof" == opened.page.title()


def test_it_fits_a_phone(opened: Opened) -> None:
    """Nothing makes the page wider than 400 pixels; the charts are drawn anew."""
    opened.resize(400, 800)
    assert 400 == opened.page.evaluate("document.documentElement.scrollWidth")
    opened.resize(1280, 900)


@pytest.mark.parametrize("seconds", [0, 3e-7, 9.4e-4, 0.00123456, 0.0456, 0.9994, 0.9996, 12.345])
def test_both_write_durations_alike(opened: Opened, seconds: float) -> None:
    """The page's script, and gpuprof."""
    assert duration(seconds) == opened.page.evaluate("seconds => duration(seconds)", seconds)


def test_two_runs(run: Path, chromium: Any, tmp_path: Path) -> None:
    """Side by side, each with its own charts."""
    other = page_run.write(tmp_path / "other", seed=4)
    output = tmp_path / "both.html"
    done = CliRunner().invoke(main, ["html", str(run), str(other), "-o", str(output)])
    assert 0 == done.exit_code
    both = browser.open_page(chromium, output)
    assert ([], [], 2) == (
        both.requests,
        both.complaints,
        both.page.locator("#steps svg").count(),
    )
    assert "30 are needed" in both.page.locator("#diff").inner_text()


@pytest.mark.exhaustive
def test_ten_thousand_workers(chromium: Any, tmp_path: Path) -> None:
    """In less than 3 s of the page's thread, and 5 MB."""
    made = large_run.write(tmp_path / "run")
    assert 0 == CliRunner().invoke(main, ["html", str(made)]).exit_code
    page = made / "page.html"
    assert page.stat().st_size < 5 * MIB
    found = browser.open_page(chromium, page)
    assert 0 < found.seconds < 3
    assert ([], []) == (found.requests, found.complaints)
    assert 64 == found.page.locator("#heat tbody tr").count()
    assert "node-154" == found.page.locator("#heat tbody th").first.inner_text()


def test_samples_of_a_step_are_drawn(chromium: Any, tmp_path: Path) -> None:
    """A sentence says when most of them were done."""
    made = sample_run.write(tmp_path / "run", steps=4)
    assert 0 == CliRunner().invoke(main, ["html", str(made)]).exit_code
    opened = browser.open_page(chromium, made / "page.html")
    assert [] == opened.complaints
    assert "64 samples. Done: 50 % after " in opened.page.locator("#samples").inner_text()


def test_a_run_without_samples_has_no_picture_of_them(opened: Opened) -> None:
    """Most runs are not of reinforcement learning."""
    assert 0 == opened.page.locator("#samples").count()


def test_functions_of_two_ranks_are_compared(tmp_path: Path, chromium: Any) -> None:
    """What one takes longer than the other; the other takes nothing longer than the first."""
    run = stacked_run.write(tmp_path / "run")
    assert 0 == CliRunner().invoke(main, ["html", str(run)]).exit_code
    opened = browser.open_page(chromium, run / "page.html")
    whose, than = opened.page.locator("#stacks select").all()
    whose.select_option(label="A-2")
    than.select_option(label="more than A-1")
    boxes = opened.page.locator("#stacks svg text").all()
    assert ["load", "loads (json/__init__.py:346)"] == [box.text_content() for box in boxes]
    whose.select_option(label="A-1")
    than.select_option(label="more than A-2")
    assert "Nothing takes longer." == opened.texts("#stacks .icicle p")[0]
