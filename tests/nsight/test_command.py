"""Rendering `nsys profile`, without nsys."""

from __future__ import annotations

import shlex
from typing import Any

import attrs
import pytest
from gpuprof import Command, Tool, Window, Worker
from gpuprof.errors import ConfigError
from gpuprof_nsight._command import effective, notes, render, words
from gpuprof_nsight._options import SYNONYMS, NsightOptions
from hypothesis import given
from hypothesis import strategies as st

STEPS = (Window(1, 3, 4), Window(2, 10, 11))
WORKER = Worker("run", "ActorGroup", 0, "node", "1", "/out/run/node", STEPS)
WITH_GPU = attrs.evolve(WORKER, has_gpu=True)

name = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12).filter(lambda text: not text.startswith("-"))
value = st.text(st.characters(blacklist_categories=("Cs", "Cc"))) | st.integers() | st.booleans()
# What is ours to say, under each of its names.
OURS = {"o", "output", "f", "force-overwrite", "c", "capture-range", "nvtx-capture", "wait", "kill", "t", "trace"}


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
def test_every_option_comes_back_from_the_command(options: dict[str, Any], flags: list[str]) -> None:
    """Whatever the value holds: spaces, quotes, equals signs, nothing at all."""
    flags = [flag for flag in flags if flag not in options]
    line = shlex.join(words(options, flags))
    expected = {key: str(text).lower() if isinstance(text, bool) else str(text) for key, text in options.items()}
    assert {**expected, **dict.fromkeys(flags)} == parse(shlex.split(line))


@given(st.dictionaries(name.filter(lambda text: text not in OURS and text not in SYNONYMS), value, min_size=1))
def test_the_users_options_all_reach_nsys(options: dict[str, Any]) -> None:
    """On a worker with a GPU no option is dropped or changed."""
    rendered, _ = effective(WITH_GPU, NsightOptions(options=options))
    assert options.items() <= rendered.items()


def test_the_default_preset_on_a_gpu() -> None:
    """RLinf's preset, with the gate and what keeps nsys from ending the job."""
    assert (
        "nsys profile -t cuda,cudnn,cublas,nvtx,osrt --sample=process-tree --cpuctxsw=process-tree --cudabacktrace=all "
        "--osrt-threshold=1000 --capture-range=nvtx --nvtx-capture=gate@gpuprof --capture-range-end=repeat:2 --wait=primary "
        "--kill=none --force-overwrite=true -o /out/run/node/ActorGroup-0.start-1 python -u train.py"
    ) == shlex.join(render(WITH_GPU, Command(("python", "-u"), ("train.py",)), Tool("nsys"), NsightOptions()))


def test_without_a_gpu_sampling_is_off_and_said() -> None:
    """The two options that hang a worker without a GPU become none."""
    rendered, _ = effective(WORKER, NsightOptions())
    assert ("none", "none") == (rendered["sample"], rendered["cpuctxsw"])
    assert "cudabacktrace" not in rendered  # which needs sampling
    (note,) = notes(WORKER, NsightOptions())
    dropped = "sample=process-tree, cpuctxsw=process-tree, cudabacktrace=all"
    assert note.startswith(f"sample=none and cpuctxsw=none instead of {dropped}: sampling can hang a worker that has no GPU")


def test_sampling_that_was_not_asked_for_is_off_too() -> None:
    """The options of nsys's own default hang it as well; turning off what nobody asked for needs no note."""
    options = NsightOptions(options={"t": "nvtx"})
    rendered, _ = effective(WORKER, options)
    assert ("none", "none", []) == (rendered["sample"], rendered["cpuctxsw"], notes(WORKER, options))


def test_sampling_can_be_insisted_on() -> None:
    """`allow_cpu_sampling` keeps what was asked for."""
    options = NsightOptions(options={"s": "process-tree"}, allow_cpu_sampling=True)
    rendered, _ = effective(WORKER, options)
    assert "process-tree" == rendered["s"]
    assert "sample" not in rendered


def test_the_gate_needs_nvtx() -> None:
    """A trace without nvtx would never open its window."""
    rendered, _ = effective(WORKER, NsightOptions(options={"trace": "cuda"}))
    assert ("cuda,nvtx", None) == (rendered["trace"], rendered.get("t"))


def test_a_capture_range_of_the_users_own_wins() -> None:
    """Then the plan says that the steps are not gpuprof's to decide."""
    options = NsightOptions(options={"t": "cuda", "capture-range": "cudaProfilerApi"})
    rendered, _ = effective(WORKER, options)
    assert ("cudaProfilerApi", None) == (rendered["capture-range"], rendered.get("nvtx-capture"))
    assert ["capture-range=cudaProfilerApi is yours: gpuprof does not decide which steps are recorded"] == notes(WITH_GPU, options)


def test_a_capture_range_end_that_records_one_window() -> None:
    """Several windows with `stop` lose all but the first, which is said."""
    options = NsightOptions(options={"capture-range-end": "stop"})
    assert "stop" == effective(WITH_GPU, options)[0]["capture-range-end"]
    assert ["capture-range-end=stop records only the first of 2 windows"] == notes(WITH_GPU, options)


def test_the_whole_life_has_no_gate() -> None:
    """Without steps nsys records from start to end."""
    rendered, _ = effective(attrs.evolve(WORKER, windows=(Window(1, None, None),)), NsightOptions())
    assert {"capture-range", "nvtx-capture", "capture-range-end"}.isdisjoint(rendered)


def test_percent_signs_in_the_path_are_kept() -> None:
    """nsys expands `%` in the report's name."""
    rendered, _ = effective(attrs.evolve(WORKER, directory="/out/100%"), NsightOptions())
    assert "/out/100%%/ActorGroup-0.start-1" == rendered["o"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"options": {"t": "nvtx", "trace": "osrt"}}, "options.trace: 'trace' is given by options.t too; name it once"),
        ({"flags": ["--stats"]}, "flags: '--stats' is not valid; expected an option's name without dashes and without ="),
        ({"options": {"o": "mine"}}, "options.o: gpuprof names the report itself; set output_dir"),
        ({"options": {"sample": None}}, "options.sample: null is not valid; leave the key out"),
    ],
)
def test_options_that_cannot_be(wrong: dict[str, Any], message: str) -> None:
    """Each refusal names the key, the value and what would be valid."""
    with pytest.raises(ConfigError) as caught:
        NsightOptions(**wrong)
    assert [message] == list(caught.value.problems)
