"""What `gpuprof report --nvtx` keeps of reports, and reading several reports at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gpuprof._cli import main
from gpuprof._report import cache
from support import plugins
from support.json_output import faults
from support.run_files import run_file

READER = """
import attrs, threading
from pathlib import Path
from gpuprof.backend import RangeTimes, hookimpl, option
from gpuprof.errors import GpuprofError
read = []
together = threading.Barrier(1)

@attrs.frozen
class Options:
    unit: str = option("what its ranges are called", default="step")

class Reader:
    Options = Options

    def __init__(self, options):
        self.options = options

    @hookimpl
    def read_ranges(self, path):
        if not path.endswith(".rep"):
            return None
        together.wait(60)
        read.append(Path(path).name)
        durations = Path(path).read_text().split()
        if "broken" in durations:
            raise GpuprofError(f"{path} is broken")
        return [
            RangeTimes(self.options.unit, map(int, durations), {"kernels": 7}),
            RangeTimes("inner", (1,), parents=(self.options.unit,)),
        ]
"""


@pytest.fixture
def run(tmp_path: Path, install: Callable[..., str]) -> Path:
    """A run with one report."""
    install(READER, reader="Reader")
    run = tmp_path / "out" / "a-run"
    (run / "node").mkdir(parents=True)
    (run / "run.json").write_text(json.dumps(run_file("a-run", config={"backend": "reader"})))
    (run / "node" / "A-0.rep").write_text("5 -3 70000000000")
    return run


def ranges(run: Path, *words: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(main, ["report", "--nvtx", "--json", str(run), *words])
    assert 0 == done.exit_code, done.output
    content = json.loads(done.stdout)
    assert [] == faults("report-nvtx", content)
    found: list[dict[str, Any]] = content["windows"]
    return found


def cached() -> Path:
    (file,) = cache.directory().iterdir()
    return file


def test_a_report_is_read_once(run: Path) -> None:
    """The second time its ranges come from the cache, with everything that they had."""
    first, second = ranges(run), ranges(run)
    assert first == second
    assert [5, -3, 70_000_000_000] == second[0]["ranges"][0]["durations"]
    assert {"kernels": 7} == second[0]["ranges"][0]["device"]
    assert ["A-0.rep"] == plugins.newest().read


def test_only_the_user_can_read_the_cache(run: Path) -> None:
    """A report may say more than its ranges may tell others."""
    ranges(run)
    assert 0o700 == cache.directory().stat().st_mode & 0o777
    assert 0o600 == cached().stat().st_mode & 0o777


def test_another_content_is_read_anew(run: Path) -> None:
    """Also one of the same size and time."""
    report = run / "node" / "A-0.rep"
    before = report.stat()
    ranges(run)
    report.write_text("5 -3 80000000000")
    os.utime(report, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [5, -3, 80_000_000_000] == ranges(run)[0]["ranges"][0]["durations"]


def test_other_settings_read_anew(run: Path) -> None:
    """A backend may return other ranges with them."""
    ranges(run)
    assert "epoch" == ranges(run, "--set", "reader.unit=epoch")[0]["ranges"][0]["name"]


def test_what_a_run_brings_is_not_believed(run: Path) -> None:
    """An archive of somebody else's may hold anything: nothing of ours is beside a report."""
    ranges(run)
    assert [run / "node" / "A-0.rep"] == [*(run / "node").iterdir()]


@pytest.mark.parametrize(
    "content", ["", "[]{", "[3]", '[{"name": 3}]', '[{"name": "a", "durations": ["5"]}]', "\ud800"]
)
def test_a_damaged_cache_is_replaced(run: Path, content: str) -> None:
    """The report is read, and the next reading can use the cache again."""
    expected = ranges(run)
    cached().write_bytes(content.encode("utf-8", "surrogatepass"))
    assert [expected, expected] == [ranges(run), ranges(run)]
    assert ["A-0.rep"] * 2 == plugins.newest().read


def test_a_directory_that_takes_no_cache(run: Path) -> None:
    """The report is read each time."""
    cache.directory().parent.mkdir(parents=True)
    cache.directory().write_text("in the way")  # root may write into a read-only directory
    assert ranges(run) == ranges(run)
    assert ["A-0.rep"] * 2 == plugins.newest().read


def test_a_linked_report_is_read_each_time(run: Path, tmp_path: Path) -> None:
    """It may be a link to anything."""
    link = tmp_path / "link.rep"
    link.symlink_to(run / "node" / "A-0.rep")
    assert ranges(link) == ranges(link)
    assert ["link.rep"] * 2 == plugins.newest().read


def test_a_file_that_nobody_uses_is_removed(run: Path) -> None:
    """When another one is cached, a month later."""
    ranges(run)
    old = cached()
    os.utime(old, (0, 0))
    (run / "node" / "A-0.rep").write_text("7")
    ranges(run)
    assert old != cached()


def test_the_cache_can_be_removed(run: Path) -> None:
    """`gpuprof clean --cache` removes it and keeps the run."""
    ranges(run)
    size = cached().stat().st_size
    done = CliRunner().invoke(main, ["clean", "--cache"])
    assert (0, f"{size} B freed in {cache.directory()}\n") == (done.exit_code, done.output)
    assert [] == [*cache.directory().iterdir()]
    assert (run / "node" / "A-0.rep").exists()


def test_the_cache_is_removed_as_a_whole(run: Path) -> None:
    """Names of runs choose runs."""
    done = CliRunner().invoke(main, ["clean", "--cache", "a-run"])
    assert 2 == done.exit_code
    assert "give either run names or --older-than DAYS or --cache" in done.output


def test_several_reports_are_read_at_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are cores; each waits here until all of them have begun."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    for rank in (1, 2):
        (run / "node" / f"A-{rank}.rep").write_text("1")
    ranges(run)  # imports the plugin
    cache.remove()
    plugins.newest().together = type(plugins.newest().together)(3)
    assert 3 == len(ranges(run))
    assert {"A-0.rep", "A-1.rep", "A-2.rep"} == {*plugins.newest().read[-3:]}


def test_a_broken_report_is_not_cached(run: Path) -> None:
    """It is named each time, beside the others."""
    (run / "node" / "A-1.rep").write_text("broken")
    for _ in range(2):
        done = CliRunner().invoke(main, ["report", "--nvtx", str(run)])
        assert 1 == done.exit_code
        assert f"{run / 'node' / 'A-1.rep'} is broken" in done.stderr
    assert ["A-0.rep", "A-1.rep", "A-1.rep"] == sorted(plugins.newest().read)
