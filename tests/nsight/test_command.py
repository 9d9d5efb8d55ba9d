"""Rendering `nsys profile`, without nsys."""

from __future__ import annotations

import shlex
from typing import Any

import attrs
import pytest
from gpuprof.backend import Command, Tool, Window, Worker
from gpuprof.errors import ConfigError
from gpuprof_nsight._command import known
from gpuprof_nsight._command.gate import choose
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._command.render import effective, notes, render, start_options, words
from gpuprof_nsight._names import session_name
from hypothesis import given
from hypothesis import strategies as st

STEPS = (Window(1, 3, 4), Window(2, 10, 11))
WORKER = Worker("run", "ActorGroup", 0, "node", "1", "/out/run/node", STEPS)
WITH_GPU = attrs.evolve(WORKER, has_gpu=True)
TOOL = Tool("nsys")

name = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12).filter(
    lambda text: not text.startswith("-")
)
value = st.text(st.characters(blacklist_categories=("Cs", "Cc"))) | st.integers() | st.booleans()
# What is ours to say, under each of its names.
OURS = {
    "o",
    "output",
    "f",
    "force-overwrite",
    "c",
    "capture-range",
    "nvtx-capture",
    "wait",
    "kill",
    "t",
    "trace",
}


def parse(rendered: list[str]) -> dict[str, str | None]:
    """Read options back, as getopt would."""
    found: dict[str, str | None] = {}
    words = iter(rendered)
    for word in words:
        if word.startswith("--"):
            key, equals, text = word[2:].partition("=")
            found[key] = text if equals else None
        else:
            found[word[1:]] = next(words)
    return found


@given(st.dictionaries(name, value), st.lists(name.filter(lambda text: len(text) > 1), unique=True))
def test_every_option_comes_back_from_the_command(
    options: dict[str, Any], flags: list[str]
) -> None:
    """Whatever the value holds: spaces, quotes, equals signs, nothing at all."""
    flags = [flag for flag in flags if flag not in options]
    line = shlex.join(words(options, flags))
    expected = {
        key: str(text).lower() if isinstance(text, bool) else str(text)
        for key, text in options.items()
    }
    assert {**expected, **dict.fromkeys(flags)} == parse(shlex.split(line))


@given(
    st.dictionaries(
        name.filter(lambda text: text not in OURS and known.find(text) is None), value, min_size=1
    )
)
def test_the_users_options_all_reach_nsys(options: dict[str, Any]) -> None:
    """On a worker with a GPU no option is dropped or changed."""
    rendered, _ = effective(WITH_GPU, NsightOptions(options=options))
    assert options.items() <= rendered.items()


def test_the_default_preset_on_a_gpu() -> None:
    """RLinf's preset, with the gate and what keeps nsys from ending the job."""
    assert (
        "nsys profile -t cuda,cudnn,cublas,nvtx,osrt --sample=process-tree --cpuctxsw=process-tree "
        "--cudabacktrace=all "
        "--osrt-threshold=1000 --capture-range=nvtx --nvtx-capture=gate@gpuprof-gate "
        "--capture-range-end=repeat:2 --wait=primary "
        "--kill=none --force-overwrite=true -o /out/run/node/ActorGroup-0.start-1 python -u "
        "train.py"
    ) == shlex.join(
        render(WITH_GPU, Command(("python", "-u"), ("train.py",)), Tool("nsys"), NsightOptions())
    )


def test_without_a_gpu_sampling_is_off_and_said() -> None:
    """The two options that hang a worker without a GPU become none."""
    rendered, _ = effective(WORKER, NsightOptions())
    assert "none" == rendered["sample"]
    assert "none" == rendered["cpuctxsw"]
    assert "cudabacktrace" not in rendered  # which needs sampling
    _, note = notes(WORKER, NsightOptions(), TOOL)
    dropped = "sample=process-tree, cpuctxsw=process-tree, cudabacktrace=all"
    assert note.startswith(
        f"sample=none and cpuctxsw=none replace {dropped}: without a GPU, sampling can "
        "hang the worker"
    )


def test_sampling_that_was_not_asked_for_is_off_too() -> None:
    """nsys's default sampling hangs a worker, too; turning it off unasked needs no note."""
    options = NsightOptions(options={"t": "nvtx"})
    rendered, _ = effective(WORKER, options)
    assert "none" == rendered["sample"]
    assert "none" == rendered["cpuctxsw"]
    assert 1 == len(notes(WORKER, options, TOOL))


@pytest.mark.parametrize("worker", [WORKER, WITH_GPU])
def test_without_samples_no_switches_are_traced(worker: Worker) -> None:
    """nsys would trace them unless it is told, and hang with them now and then.

    Nothing was asked for that is not had.
    """
    options = NsightOptions(options={"t": "nvtx", "s": "none"})
    assert "none" == effective(worker, options)[0]["cpuctxsw"]
    assert " replace " not in "".join(notes(worker, options, TOOL))


def test_switches_that_were_asked_for_are_traced_without_samples() -> None:
    """The user's own value wins on a worker that may sample."""
    options = NsightOptions(options={"t": "nvtx", "sample": "none", "cpuctxsw": "process-tree"})
    assert "process-tree" == effective(WITH_GPU, options)[0]["cpuctxsw"]


def test_sampling_can_be_insisted_on() -> None:
    """`allow_cpu_sampling` keeps what was asked for."""
    options = NsightOptions(options={"s": "process-tree"}, allow_cpu_sampling=True)
    rendered, _ = effective(WORKER, options)
    assert "process-tree" == rendered["s"]
    assert "sample" not in rendered


def test_the_gate_needs_nvtx() -> None:
    """A trace without nvtx would never open its window."""
    rendered, _ = effective(WORKER, NsightOptions(options={"trace": "cuda"}))
    assert "cuda,nvtx" == rendered["trace"]
    assert rendered.get("t") is None


def test_a_capture_range_of_the_users_own_wins() -> None:
    """Then the plan says that what is recorded is not gpuprof's to decide."""
    options = NsightOptions(
        options={"t": "cuda", "capture-range": "nvtx", "nvtx-capture": "mine@*"}
    )
    rendered, _ = effective(WORKER, options)
    assert "nvtx" == rendered["capture-range"]
    assert "mine@*" == rendered["nvtx-capture"]
    assert ["gate none: your capture-range=nvtx decides what is recorded, not gpuprof"] == notes(
        WITH_GPU, options, TOOL
    )


def test_the_cuda_profiler_as_capture_range_is_the_cuda_gate() -> None:
    """gpuprof can open that one itself, for every window."""
    options = NsightOptions(options={"t": "nvtx", "c": "cudaProfilerApi"})
    rendered, _ = effective(WITH_GPU, options)
    assert "cudaProfilerApi" == rendered["capture-range"]
    assert "repeat:2" == rendered["capture-range-end"]
    assert "nvtx,cuda" == rendered["t"]
    assert ["gate cuda: capture-range=cudaProfilerApi"] == notes(WITH_GPU, options, TOOL)


def test_the_cuda_profiler_as_capture_range_of_a_whole_life_is_the_users() -> None:
    """Nsys then waits for the job's own calls, which the plan says."""
    options = NsightOptions(options={"t": "cuda", "c": "cudaProfilerApi"})
    lifetime = attrs.evolve(WITH_GPU, windows=(Window(1, None, None),))
    assert "cudaProfilerApi" == effective(lifetime, options)[0]["c"]
    note = "gate none: your capture-range=cudaProfilerApi decides what is recorded, not gpuprof"
    assert [note] == notes(lifetime, options, TOOL)


def test_the_session_gate_splits_the_options() -> None:
    """`nsys launch` gets tracing, `nsys start` sampling; a note names options that neither has."""
    discrete = attrs.evolve(WITH_GPU, discrete=True)
    options = NsightOptions(options={"t": "nvtx", "s": "process-tree", "kill": "none", "x": "true"})
    launched = render(discrete, Command(("python",)), Tool("nsys"), options)
    assert [
        "nsys",
        "launch",
        f"--session-new={session_name(discrete)}",
        "-t",
        "nvtx",
        "--wait=primary",
        "python",
    ] == launched
    assert ["-s", "process-tree", "-x", "true", "--force-overwrite=true"] == start_options(
        discrete, options, TOOL
    )
    assert "kill left out: the session gate has no such option" in notes(discrete, options, TOOL)


def test_the_session_gate_splits_by_the_installed_releases_help() -> None:
    """2022.4's `start` has no `nic-metrics`, 2023.4's has: the one leaves it out, which is said."""
    discrete, options = (
        attrs.evolve(WITH_GPU, discrete=True),
        NsightOptions(options={"t": "nvtx", "nic-metrics": True}),
    )
    old = Tool(
        "nsys", "2022.4.2", {"launch": ["t"], "start": ["o"], "profile": ["t", "o", "nic-metrics"]}
    )
    new = Tool("nsys", "2023.4.4", {**old.features, "start": ["o", "nic-metrics"]})
    given = {
        tool.version: "--nic-metrics=true" in start_options(discrete, options, tool)
        for tool in (old, new)
    }
    assert {"2022.4.2": False, "2023.4.4": True} == given
    said = "nic-metrics left out: the session gate has no such option"
    assert [True, False] == [said in notes(discrete, options, tool) for tool in (old, new)]
    assert "--nic-metrics=true" not in render(discrete, Command(("python",)), new, options)


@pytest.mark.parametrize(
    ("changes", "gate", "expected"),
    [
        ({}, "auto", "nvtx"),
        ({"has_gpu": True}, "auto", "nvtx"),
        ({"windows": (Window(1, None, None),)}, "auto", "none"),
        ({"windows": ()}, "auto", "session"),
        ({"discrete": True}, "auto", "session"),
        ({"discrete": True}, "nvtx", "session"),
        ({}, "cuda", "cuda"),
        ({}, "session", "session"),
    ],
)
def test_which_gate_a_worker_gets(changes: dict[str, Any], gate: Any, expected: str) -> None:
    """By what is known of its windows, unless the user says."""
    assert expected == choose(attrs.evolve(WORKER, **changes), NsightOptions(gate=gate)).gate


def test_session_names_differ_between_workers_and_starts() -> None:
    """Nsys hangs on a name that is taken."""
    others = [
        attrs.evolve(WORKER, rank=1),
        attrs.evolve(WORKER, incarnation="2"),
        attrs.evolve(WORKER, run="other"),
    ]
    assert 4 == len({session_name(worker) for worker in (WORKER, *others)})


@pytest.mark.parametrize(
    ("end", "recorded"),
    [
        ("stop", "the first"),
        ("stop-shutdown", "the first"),
        ("repeat:1", "the first"),
        ("repeat:2", "the first 2"),
        ("repeat-shutdown:2", "the first 2"),
        ("repeat:2:async", "the first 2"),
        ("repeat", None),
        ("repeat:3", None),
        ("repeat-shutdown:10", None),
    ],
)
def test_a_capture_range_end_that_records_fewer_windows(end: str, recorded: str | None) -> None:
    """A note says how many windows the user's value loses; nsys still gets the value."""
    worker, options = (
        attrs.evolve(WITH_GPU, windows=(*STEPS, Window(3, 20, 21))),
        NsightOptions(options={"capture-range-end": end}),
    )
    assert end == effective(worker, options)[0]["capture-range-end"]
    expected = [f"capture-range-end={end} records only {recorded} of 3 windows"] if recorded else []
    assert expected == [
        note for note in notes(worker, options, TOOL) if "capture-range-end" in note
    ]


@pytest.mark.parametrize(
    ("modes", "end"), [([], "repeat:2"), (["defer", "sync", "async"], "repeat:2:sync")]
)
def test_reports_are_written_when_their_window_ends(modes: list[str], end: str) -> None:
    """By an nsys that could do it later, as its help says."""
    tool = Tool("nsys", None, {"modes": modes})
    rendered = parse(render(WITH_GPU, Command(()), tool, NsightOptions(options={"t": "nvtx"}))[2:])
    assert end == rendered["capture-range-end"]


def test_a_capture_range_end_that_ends_no_report() -> None:
    """All windows are in the first one's."""
    options = NsightOptions(options={"capture-range-end": "none"})
    note = (
        "capture-range-end=none: one report covers everything from the first window to the "
        "worker's end"
    )
    assert note in notes(WITH_GPU, options, TOOL)


def test_the_whole_life_has_no_gate() -> None:
    """Without steps nsys records from start to end."""
    rendered, _ = effective(attrs.evolve(WORKER, windows=(Window(1, None, None),)), NsightOptions())
    assert {"capture-range", "nvtx-capture", "capture-range-end"}.isdisjoint(rendered)


def test_percent_signs_in_the_path_are_kept() -> None:
    """nsys expands `%` in the report's name."""
    rendered, _ = effective(attrs.evolve(WORKER, directory="/out/100%"), NsightOptions())
    assert "/out/100%%/ActorGroup-0.start-1" == rendered["o"]


@pytest.mark.parametrize(
    ("given", "template"),
    [
        ("%p.%h_%n", "{pid}.{node}_{n}"),
        ("100%%p", "100%p"),
        ("%%%p", "%{pid}"),
        ("%%%%", "%%"),
        ("{rank}%x", "{rank}%x"),
    ],
)
def test_what_nsys_replaces_in_names(given: str, template: str) -> None:
    """nsys's variables become ours; `%%` is a percent sign, and the text after it stays."""
    assert template == NsightOptions(options={"o": given}).file_name


def test_the_cuda_gate_without_a_gpu_is_said() -> None:
    """Before the first window fails in the worker."""
    options = NsightOptions(options={"t": "cuda"}, gate="cuda")
    assert 1 == sum(
        note.startswith("gate cuda on a worker without a GPU")
        for note in notes(WORKER, options, TOOL)
    )
    assert ["gate cuda: gate: cuda"] == notes(WITH_GPU, options, TOOL)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"options": {"t": "nvtx", "trace": "osrt"}},
            "options.trace: 'trace' is given by options.t too; name it once",
        ),
        (
            {"flags": ["python-backtrace"]},
            (
                "flags: 'python-backtrace' needs a value, and would take the program for it; give "
                "options: {python-backtrace: …}; valid: cuda, none, …"
            ),
        ),
        (
            {"flags": ["--stats"]},
            "flags: '--stats' is not valid; expected an option's name without dashes or =",
        ),
        (
            {"options": {"o": "a/b"}},
            (
                "options.o: 'a/b' is not valid: expected a file name without a directory; "
                "output_dir sets the directory"
            ),
        ),
        (
            {"options": {"osrt-threshold": "fast"}},
            "options.osrt-threshold: 'fast' is not valid; expected an integer",
        ),
        (
            {"options": {"o": "%%q{A}-%q{RANK}"}},
            (
                "options.o: '%%q{A}-%q{RANK}' is not valid: %q{RANK} is not supported; "
                "use {group}, {rank}, {step}, {pid} or {node}"
            ),
        ),
        ({"gate": "door"}, "gate: 'door' is not valid; expected auto, cuda, nvtx, session"),
        (
            {"options": {"t": "cuda", "nvtx": None}},  # of `{t: cuda,nvtx}`
            (
                "options.nvtx: null is not valid; leave the key out, or quote a value that has "
                "commas: "
                '{t: "cuda,nvtx"}'
            ),
        ),
    ],
)
def test_options_that_cannot_be(wrong: dict[str, Any], message: str) -> None:
    """Each refusal names the key, the value and what would be valid."""
    with pytest.raises(ConfigError) as caught:
        NsightOptions(**wrong)
    assert [message] == list(caught.value.problems)
