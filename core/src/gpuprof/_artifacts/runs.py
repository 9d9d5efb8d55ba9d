"""Begins, lists, finds and removes the runs in an output directory, and reads their states."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from gpuprof._artifacts import alive, formats
from gpuprof._artifacts.early_ends import listed
from gpuprof._artifacts.formats import (
    LARGEST_MANIFEST,
    MANIFEST_VERSION,
    RUN_VERSION,
    EarlyEnd,
    Manifest,
    RunFile,
)
from gpuprof._artifacts.receipt import count, counted
from gpuprof._artifacts.records import NodeRecord, read_nodes
from gpuprof._artifacts.run_id import RUN_VARIABLE
from gpuprof._config import OUTPUT_DIR
from gpuprof._distribution import release
from gpuprof._session.environment import environment, git_commit
from gpuprof._shim.files import file_size, write_json
from gpuprof._shim.safe import publish, regular_files, remove_tree
from gpuprof.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from gpuprof._config.schema import Config

_BEGUN = "run.json"
_ENDED = "manifest.json"
State = Literal["ended", "interrupted", "running", "killed", "unknown"]
_WITHOUT_RECEIPT = {
    True: "running",
    False: "finished, no receipt; run gpuprof collect RUN",
    None: "no receipt: still running, or its driver died; run gpuprof collect RUN",
}


@attrs.frozen
class Run:
    """One run.

    Args:
        begun: when the run began, in seconds since the epoch.
        reports: the numbers of expected reports and of complete ones; ``None`` before there is a
            receipt.
        size: the size of the run directory in bytes.
        goes_on: whether the run is still going on; ``None`` if that is not known.
        ended_early: the names of the workers that were killed or crashed.
        faults: a message for each file of the run that cannot be read.
    """

    name: str
    directory: str
    begun: float
    backend: str
    reports: tuple[int, int] | None
    size: int
    goes_on: bool | None = None
    ended_early: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """How the run ended, and which of its files cannot be read."""
        receipt = [] if self.reports is None else [counted(*self.reports)]
        if self.goes_on or not receipt:
            receipt.insert(0, _WITHOUT_RECEIPT[self.goes_on])
        early = [f"{listed(self.ended_early)} ended early"] if self.ended_early else []
        return "; ".join((*receipt, *early, *self.faults))


@attrs.frozen
class About:
    """What the two files in a run directory say about the run.

    Args:
        beginning: ``run.json``; ``None`` if it is missing or cannot be read.
        manifest: ``manifest.json``; ``None`` if it is missing or cannot be read.
        faults: a message for each of the two that cannot be read.
    """

    directory: str
    run: str
    beginning: RunFile | None = None
    manifest: Manifest | None = None
    faults: tuple[str, ...] = ()

    @property
    def finalized(self) -> bool:
        """Whether the driver has written the manifest."""
        return self.manifest is not None and "workers" in self.manifest

    @property
    def ended_early(self) -> list[EarlyEnd] | None:
        """The workers that were killed or crashed; ``None`` if the manifest does not say."""
        return self.manifest.get("ended_early") if self.manifest else None

    @property
    def ended_by_job(self) -> list[EarlyEnd]:
        """The workers that the job itself ended before the run's end, as far as they are known."""
        return self.manifest.get("ended_by_job", []) if self.manifest else []

    @property
    def config(self) -> dict[str, Any]:
        """The run's settings; empty if they are not known."""
        return self.beginning["config"] if self.beginning else {}

    @property
    def launched(self) -> bool:
        """Whether `gpuprof run` started the run, so that no driver knows all of its workers."""
        return self.beginning is not None and self.beginning["driver"] is None

    @property
    def state(self) -> State:
        """Whether the run has ended, as it does by itself and with Ctrl-C."""
        goes_on = self.goes_on()
        if goes_on:
            return "running"
        if self.manifest is not None:
            return "ended"
        return "unknown" if goes_on is None else "killed"

    def goes_on(self) -> bool | None:
        """Whether the run is still going on; ``None`` if that cannot be told from here."""
        if self.finalized:
            return False
        if self.beginning is not None and self.beginning["driver"] is not None:
            lives = alive.process_lives(self.beginning["driver"])
        else:
            lives = alive.ranks_live(alive.read_ranks(self.directory)[0])
        # A run that has been collected has ended, as far as can be told.
        return False if lives is None and self.manifest is not None else lives


class NoPlace(OutputError):
    """A run has nowhere to write, but no key is wrong: the job goes on without profiling."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, the quota, `ulimit -f`


@contextlib.contextmanager
def beginning(config: Config) -> Iterator[None]:
    """Turn file-system errors at the start of a run into gpuprof's errors.

    Raises:
        NoPlace: the disk is full, or the default output directory cannot be written.
        OutputError: the output directory that the user has chosen cannot be written.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        is_users = config.staging_dir or config.output_dir != OUTPUT_DIR
        kind = OutputError if is_users and not full else NoPlace
        remedy = (
            "another directory, or make room"
            if full
            else "a directory that this process can create or write to"
        )
        place = f" ({error.filename})" if error.filename else ""
        raise kind(
            f"{config.where('output_dir')}: {os.path.abspath(config.output_dir)!r} cannot be "
            f"written: {error.strerror}{place}; set output_dir or GPUPROF_OUTPUT_DIR to "
            f"{remedy}"
        ) from None


def begin(directory: str, run: str, config: Config, driven: bool = False) -> RunFile:
    """Make a run directory, and write ``run.json``.

    With that file, other processes can list the run, and finish it if its driver dies.

    Args:
        driven: whether this process is the run's driver, so that the run ends with it.
    """
    from gpuprof._config.dump import shown  # readers of runs need no schema

    content: RunFile = {
        "version": RUN_VERSION,
        "begun": time.time(),
        "run": run,
        "backend": config.backend,
        "directory": os.path.abspath(directory),
        "working_dir": config.working_dir,
        "config": shown(config),
        "driver": alive.this_process() if driven else None,
        "environment": environment(),
        "gpuprof": release(),
        "commit": git_commit(),
    }
    path = os.path.join(directory, _BEGUN)
    own = f"{path}.{os.urandom(8).hex()}.tmp"
    os.makedirs(directory, exist_ok=True)
    write_json(own, content)
    if not publish(own, path):
        raise _taken(directory, run)
    return content


def join(directory: str, run: str, config: Config, restarted: bool) -> None:
    """Begin the run of a launch, or join it if another rank has begun it.

    Args:
        restarted: whether the launcher has started this rank before.

    Raises:
        ConfigError: a run of this name has ended, or was not started by `gpuprof run`.
    """
    try:
        begin(directory, run, config)
    except ConfigError:
        info = about(directory)
        if info is None or not info.launched:
            raise
        is_over = alive.ranks_live(alive.read_ranks(directory)[0]) is not True
        if info.manifest is not None and is_over and not restarted:
            raise


def _taken(directory: str, run: str) -> ConfigError:
    info = about(directory)
    state = {True: "is running", False: "has ended", None: "may be running"}
    how = "cannot be read" if info is None else state[info.goes_on()]
    return ConfigError(
        f"{RUN_VARIABLE}: {run!r} is not valid: a run of this name {how}: {directory}; "
        "choose a new name, or unset it"
    )


def about(directory: str | Path) -> About | None:
    """Read the two files about a run in its directory; ``None`` if it is not a run directory.

    A run directory has the run's name, so a foreign ``run.json`` with another name, or without one,
    does not count.
    """
    info, is_run = _about(directory)
    return info if is_run else None


def _about(directory: str | Path) -> tuple[About, bool]:
    """The same as `about`, but never ``None``; and whether the directory is a run directory."""
    info = About(str(directory), os.path.basename(os.path.abspath(directory)))
    is_run = False
    for name in (_BEGUN, _ENDED):
        path = Path(directory, name)
        try:
            data = formats.load(path, LARGEST_MANIFEST)
            if data.get("run") != info.run:
                continue
            is_run = True
            if name == _BEGUN:
                beginning = formats.check(path, data, RunFile, RUN_VERSION)
                info = attrs.evolve(info, beginning=beginning)
            else:
                manifest = formats.check(path, data, Manifest, MANIFEST_VERSION)
                info = attrs.evolve(info, manifest=manifest)
        except OutputError as error:
            info = attrs.evolve(info, faults=(*info.faults, str(error)))
        except OSError:  # there is none
            pass
    return info, is_run


def records(info: About) -> list[NodeRecord]:
    """Read the nodes' files in the run directory and in the staging directory on this node."""
    output_dir, name = os.path.split(os.path.abspath(info.directory))
    working_dir = info.beginning["working_dir"] if info.beginning else output_dir
    places = dict.fromkeys(os.path.join(parent, name) for parent in (output_dir, working_dir))
    return [record for place in places if os.path.isdir(place) for record in read_nodes(place)]


def unreadable(output_dir: str) -> list[str]:
    """A sentence for each unreadable file in a directory that may be a run directory."""
    faults: list[str] = []
    for path in _directories(output_dir):
        info, is_run = _about(path)
        faults += [] if is_run else info.faults
    return faults


def runs(output_dir: str) -> list[Run]:
    """The runs in an output directory, oldest first. Skips anything else in that directory."""
    listing = []
    for path in _directories(output_dir):
        info = about(path)
        if info is None:
            continue
        either = info.manifest or info.beginning
        goes_on = info.goes_on()
        # ranks of `gpuprof run` without a profiler leave nothing to collect
        over = info.launched and goes_on is False and either and either["backend"] == "none"
        reports = (0, 0) if over else None
        listing.append(
            Run(
                name=path.name,
                directory=str(path.absolute()),
                begun=info.beginning["begun"] if info.beginning else path.stat().st_mtime,
                backend=either["backend"] if either else "",
                reports=count(info.manifest["receipt"]["rows"]) if info.manifest else reports,
                size=sum(file_size(entry.path) for entry in regular_files(path)),
                goes_on=goes_on,
                ended_early=tuple(worker["worker"] for worker in info.ended_early or ()),
                faults=(*info.faults, *alive.read_ranks(path)[1]),
            )
        )
    return sorted(listing, key=lambda run: run.begun)


def has_runs(directory: str) -> bool:
    """Whether there is a run in a directory."""
    return any(about(path) is not None for path in _directories(directory))


LATEST = "latest"
"""The name that selects the newest run."""


def find(output_dir: str, name: str = LATEST) -> str:
    """Find the directory of a run.

    Args:
        name: the run's name; or `LATEST` for the newest run that has files of a node. A run whose
            start was refused has none.
    """
    beginnings: dict[str, tuple[float, str]] = {}
    for path in _directories(output_dir):
        info = about(path)
        if info is not None:
            beginning = info.beginning["begun"] if info.beginning else path.stat().st_mtime
            beginnings[path.name] = (beginning, str(path))
    if not beginnings:
        missing = "" if name == LATEST else f"{name}: no such file, and "
        raise ConfigError(
            f"{missing}no runs in {output_dir}; --output-dir or GPUPROF_OUTPUT_DIR names their "
            "directory"
        )
    if name == LATEST:
        return max(beginnings.values(), key=lambda run: (_has_begun(run[1]), run))[1]
    if name not in beginnings:
        raise ConfigError(
            f"{name}: no such file, and no such run in {output_dir}; {hint(name, beginnings)}"
        )
    return beginnings[name][1]


def hint(name: str, names: Iterable[str]) -> str:
    """A hint at the run that a misspelt or shortened name means, or at how to list all runs.

    >>> hint("20261122-1712", ["20261122-171223-53240f", "20261123-080000-ab12cd"])
    "did you mean '20261122-171223-53240f'?"
    >>> hint("baseline", ["20261122-171223-53240f"])
    'gpuprof runs lists the runs'
    """
    candidates = list(names)
    close = [candidate for candidate in candidates if candidate.startswith(name)]
    close = close or difflib.get_close_matches(name, candidates, n=1, cutoff=0.75)
    return f"did you mean {close[0]!r}?" if len(close) == 1 else "gpuprof runs lists the runs"


def _has_begun(directory: str) -> bool:
    """Whether a node has written into a run directory."""
    return any(path.name[0] != "." for path in _directories(directory))


def _directories(output_dir: str) -> list[Path]:
    entries = sorted(Path(output_dir).iterdir()) if Path(output_dir).is_dir() else []
    return [path for path in entries if path.is_dir() and not path.is_symlink()]


def remove(run: Run) -> None:
    """Remove a run directory."""
    if about(run.directory) is None:
        raise OutputError(f"{run.directory!r} is not a run directory; left alone")
    try:
        remove_tree(run.directory, _BEGUN)
    except OSError as error:
        raise OutputError(f"{run.directory!r} cannot be removed: {error}") from None
