"""What `gpuprof report --nvtx` keeps beside reports, and reading several reports at once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gpuprof._artifacts.records import CACHE
from gpuprof._cli import main
from gpuprof._report import cache
from gpuprof.backend import RangeTimes
from support import plugins
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
    found: list[dict[str, Any]] = json.loads(done.stdout)["windows"]
    return found


def cached(run: Path) -> Path:
    (file,) = (run / "node" / CACHE).iterdir()
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
    assert 0o700 == (run / "node" / CACHE).stat().st_mode & 0o777
    assert 0o600 == cached(run).stat().st_mode & 0o777


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


def _link(file: Path) -> None:
    real = file.parent.parent / "elsewhere"
    file.rename(real)
    file.symlink_to(real)


def _linked_directory(file: Path) -> None:
    real = file.parent.parent.parent / "elsewhere"
    file.parent.rename(real)
    file.parent.symlink_to(real)


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def _header(**changes: Any) -> Callable[[Path], None]:
    def forge(file: Path) -> None:
        line, _, rest = file.read_bytes()[: -cache._SEAL].partition(b"\n")
        header = {**json.loads(line), **changes}
        header["ranges"] = [{**one, **changes} for one in header["ranges"]]
        content = json.dumps(header).encode() + b"\n" + rest
        seal = cache._new_seal()
        seal.update(content)
        file.write_bytes(content + seal.digest())

    return forge


@pytest.mark.parametrize(
    "forge",
    [
        _link, _linked_directory, _fifo, _cut,
        _header(version=3), _header(size="16"), _header(count=10**12), _header(count=-1),
        _header(count=True), _header(name=3), _header(parents="ab"),
        _header(device={"kernels": "7"}),
        lambda file: file.write_text("[]\n"), lambda file: file.write_text("{" * 1000 + "\n"),
        lambda file: file.write_bytes(b"\xff\x00"), lambda file: file.write_text(""),
    ],
)  # fmt: skip
def test_a_forged_cache_is_not_used(run: Path, forge: Callable[[Path], None]) -> None:
    """A link, damaged, or sealed by this user but of another release: the report is read."""
    expected = ranges(run)
    forge(cached(run))
    assert expected == ranges(run)
    assert ["A-0.rep"] * 2 == plugins.newest().read


def test_the_cache_of_somebody_else_is_not_believed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an unpacked archive it is this user's and private, whoever has made it."""
    expected = ranges(run)
    report, own = run / "node" / "A-0.rep", cached(run).read_bytes()
    header = json.loads(own.partition(b"\n")[0])
    forged = [RangeTimes("step", (1, 2, 3))]
    with monkeypatch.context() as attacker:
        attacker.setenv("XDG_STATE_HOME", str(tmp_path / "attacker"))
        cache._store(report, header["size"], header["digest"], header["reader"], forged)
        assert [1, 2, 3] == ranges(run)[0]["ranges"][0]["durations"]
    assert expected == ranges(run)


@pytest.mark.parametrize("damage", ["others can read it", "short", "a directory"])
def test_without_a_key_nothing_is_cached(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """The report is read each time."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    key = tmp_path / "gpuprof" / "key"
    key.parent.mkdir()
    if damage == "a directory":
        key.mkdir()
    else:
        key.write_bytes(bytes(8 if damage == "short" else 32))
        key.chmod(0o600 if damage == "short" else 0o644)
    assert ranges(run) == ranges(run)
    assert ["A-0.rep"] * 2 == plugins.newest().read


def test_a_forged_cache_is_replaced(run: Path) -> None:
    """The next reading can use it again."""
    ranges(run)
    _cut(cached(run))
    ranges(run)
    ranges(run)
    assert ["A-0.rep"] * 2 == plugins.newest().read


def test_a_directory_that_takes_no_cache(run: Path) -> None:
    """The report is read each time."""
    (run / "node" / CACHE).write_text("in the way")  # root may write into a read-only directory
    assert ranges(run) == ranges(run)
    assert ["A-0.rep"] * 2 == plugins.newest().read


def test_the_cache_can_be_removed(run: Path) -> None:
    """`gpuprof clean --cache` removes it and keeps the run."""
    ranges(run)
    clean = ["clean", "--cache", "--output-dir", str(run.parent)]
    done = CliRunner().invoke(main, clean)
    assert 0 == done.exit_code, done.output
    assert "a-run" in done.output
    assert not (run / "node" / CACHE).exists()
    assert (run / "node" / "A-0.rep").exists()
    assert "nothing to remove\n" == CliRunner().invoke(main, clean).output


def test_only_the_caches_of_named_runs_are_removed(run: Path) -> None:
    """Names choose runs as without `--cache`."""
    other = run.parent / "another"
    ranges(run)
    shutil.copytree(run, other)
    (other / "run.json").write_text(json.dumps(run_file("another")))
    clean = ["clean", "--cache", "another", "--output-dir", str(run.parent)]
    assert 0 == CliRunner().invoke(main, clean).exit_code
    assert (run / "node" / CACHE).exists()
    assert not (other / "node" / CACHE).exists()


def test_several_reports_are_read_at_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are cores; each waits here until all of them have begun."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    for rank in (1, 2):
        (run / "node" / f"A-{rank}.rep").write_text("1")
    ranges(run)  # imports the plugin
    shutil.rmtree(run / "node" / CACHE)
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
