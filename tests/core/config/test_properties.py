"""Properties of all settings: they survive YAML, select steps as a model does, never crash."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpuprof
import pytest
import yaml
from gpuprof._config.dump import dump
from gpuprof._config.load import load
from gpuprof._config.selection import Integers, windows
from gpuprof._config.sources import parse_yaml
from gpuprof.backend import loading
from gpuprof.errors import GpuprofError
from hypothesis import given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parents[1]
ROOT = HERE.parents[1]


@pytest.fixture(autouse=True, scope="module")
def _looked_up_once() -> Iterator[None]:
    """Look up installed plugins once: the look-up takes nine tenths of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuprof.backend.loading.catalogue", functools.cache(loading.catalogue))
        yield


plain_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
names = st.text("ABCabc*?-_.é ,", min_size=1, max_size=8).filter(lambda name: name.strip(" ,"))
step = st.integers(0, 60)
entry = step | st.tuples(step, st.integers(1, 9)).map(lambda pair: f"{pair[0]}:{pair[0] + pair[1]}")
entries = st.lists(entry, max_size=6)
flags = st.booleans()
selection = st.fixed_dictionaries(
    {},
    optional={
        "ranks": st.just("all") | entries | st.none(),
        "nodes": st.lists(names) | names | st.none(),
        "steps": entries | entry | st.none(),
        "continuous": flags,
        "discrete": flags,
        "max_windows": st.integers(1, 99),
        "file_name": st.sampled_from(["{worker}_{pid}", "{group}-{n}", None]),
    },
)
options = st.dictionaries(
    st.sampled_from(["t", "backtrace", "gpuctxsw"]),
    st.sampled_from(["nvtx", "cuda,nvtx", "no", "12", ""]),
)
section = st.fixed_dictionaries(
    {},
    optional={"options": options, "env": st.dictionaries(st.text("AB_", min_size=1), plain_text)},
)
configuration = st.builds(
    lambda own, chosen, section, flat: {"backend": "nsight", **own, **chosen, **section, **flat},
    st.fixed_dictionaries(
        {},
        optional={
            "enabled": flags,
            "worker_groups": st.just("all") | st.lists(names) | st.none(),
            "output_dir": plain_text.filter(str.strip),
            "on_error": st.sampled_from(["disable", "raise"]),
            "print_trees": st.sampled_from(["ends", "all", "none"]),
            "groups": st.dictionaries(
                names, st.builds(lambda a, b: {**a, "nsight": b}, selection, section), max_size=3
            ),
        },
    ),
    selection,
    st.fixed_dictionaries({}, optional={"nsight": section}),
    st.fixed_dictionaries({}, optional={"options": options}),
)


@settings(deadline=None)
@given(configuration)
def test_any_configuration_survives_yaml(data: dict[str, Any]) -> None:
    """Written and read back it selects and configures the same, and is written the same."""
    once = load(data, environ={})
    twice = load(parse_yaml(dump(once)), environ={})
    assert once == twice
    assert dump(once) == dump(twice)


@settings(deadline=None)
@given(configuration)
def test_yaml_is_read_as_others_read_it(data: dict[str, Any]) -> None:
    """Our YAML reader differs from the usual one only in base-60 numbers, which we quote."""
    assert yaml.safe_load(dump(load(data, environ={}))) == parse_yaml(dump(load(data, environ={})))


@given(entries, st.booleans())
def test_steps_against_a_plain_model(given_entries: list[Any], continuous: bool) -> None:
    """The windows hold exactly the given steps: one each, or one for each unbroken run."""
    wanted: set[int] = set()
    for one in given_entries:
        start, _, stop = str(one).partition(":")
        wanted |= set(range(int(start), int(stop or int(start) + 1)))
    made = windows(Integers.parse(given_entries), continuous)
    held = [number for window in made for number in range(window.start or 0, window.stop or 0)]
    assert sorted(wanted) == held
    runs = len([number for number in wanted if number - 1 not in wanted])
    assert (runs if continuous else len(wanted)) == len(made)
    assert list(range(1, len(made) + 1)) == [window.number for window in made]


anything = st.recursive(
    st.none() | flags | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3)
    | st.dates()
    | st.sampled_from([
        "nsight", "rocprof_sys", "all", "1:3", "${a}", "null", -1, 10**30, "cudaProfilerApi",
        "nsys",
    ]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5) | st.integers() | st.none(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def paths(data: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested mappings and lists."""
    inner = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    return [above, *(path for key, value in inner for path in paths(value, (*above, key)))]


@st.composite
def mutated(draw: st.DrawFn, original: Any) -> Any:
    """Real settings with one to four places replaced, taken out, renamed or put elsewhere."""
    data = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 4))):
        places = paths(data)[1:]
        if not places:
            break
        *above, last = draw(st.sampled_from(places))
        container = data
        for key in above:
            container = container[key]
        way = draw(st.sampled_from(["replace", "remove", "rename", "wrap", "copy"]))
        if way == "replace":
            container[last] = draw(anything)
        elif way == "wrap":
            container[last] = draw(
                st.sampled_from([[container[last]], {"x": container[last]}, str(container[last])])
            )
        elif way == "copy":
            container[last] = copy.deepcopy(data)
        elif isinstance(container, list) or way == "remove":
            del container[last]
        else:
            container[
                draw(
                    st.text(max_size=4)
                    | st.sampled_from(
                        ["steps", "ranks", "backend", "profiler", "groups", "options"]
                    )
                )
            ] = container.pop(last)
    return data


RLINF = {
    "defaults": ["profile/default@cluster.profiling"],
    "runner": {"logger": {"log_path": "../results", "experiment_name": "x"}},
    "cluster": {
        "profiling": {
            "backend": "rocprof_sys",
            "steps": [3, 10],
            "worker_groups": ["ActorGroup", "Env"],
            "options": {"t": "nvtx", "stop-on-range-end": True, "capture-range": "cudaProfilerApi"},
            "flags": ["python-backtrace"],
            "args": {"T": "hip,hsa", "output-format": "json"},
            "env": {"A": "1"},
        }
    },
}
VERL_OLD = {
    "trainer": {"profile_steps": [1, 2], "worker_nsight_options": {"trace": "nvtx"}},
    "actor_rollout_ref": {
        "actor": {"profile_ranks": [0, 1], "profile_discrete": False},
        "rollout": {"profiler": {"ranks": [0]}},
    },
    "critic": {
        "profiler": {
            "enable": True,
            "all_ranks": True,
            "tool": "nsys",
            "tool_config": {"nsys": {"discrete": False}},
        }
    },
    "global_profiler": {"save_path": "x", "finish_hook_cmd": "true", "finish_hook_ranks": [0]},
}
# By way of JSON, so that nothing in it is shared: a mutation of one place must not be one of five.
VERL = json.loads(
    json.dumps(yaml.safe_load((HERE.parent / "settings" / "verl_today.yaml").read_text()))
)
NEMO_RL = {
    "NRL_NSYS_WORKER_PATTERNS": "*policy*, *vllm*",
    "NRL_NSYS_PROFILE_STEP_RANGE": "3:5",
    "NRL_NSYS_EXTRA_OPTIONS": '{"o": "/a/%p", "cpuctxsw": "none"}',
}
OWN = {
    **yaml.safe_load((ROOT / "examples" / "ray_ppo" / "config.yaml").read_text()),
    "plugins": [],
    "groups": {"Actor*": {"steps": ["1:3"], "nsight": {"options": {"t": "nvtx"}}}},
}


@pytest.mark.parametrize(
    ("system", "original"),
    [
        (None, OWN),
        (None, OWN["profiling"]),
        ("rlinf", RLINF),
        ("verl", VERL),
        ("verl", VERL_OLD),
        ("nemo-rl", NEMO_RL),
    ],
    ids=["own", "own section", "rlinf", "verl", "verl older", "nemo-rl"],
)
def test_no_settings_are_too_wrong(system: str | None, original: dict[str, Any]) -> None:
    """Each mutation of a real configuration is planned, or refused by one of our errors."""

    @settings(deadline=None)  # `make fuzz` tries thousands
    @given(mutated(original))
    def check(data: Any) -> None:
        with contextlib.suppress(GpuprofError):
            str(gpuprof.plan(data, {"ActorGroup": 1, "critic": 1}, system=system))

    check()


@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_file_is_too_wrong(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Whatever a file holds."""
    file = tmp_path_factory.mktemp("fuzz") / "a.yaml"
    file.write_text(
        text, encoding="utf-8", errors="surrogateescape" if text.isprintable() else "replace"
    )
    with contextlib.suppress(GpuprofError):
        gpuprof.plan(str(file))


@settings(deadline=None)
@given(st.lists(st.text("abc.=+~[]{}:,'\"*&!|>%@ \n", max_size=12), max_size=3))
def test_no_override_is_too_wrong(overrides: list[str]) -> None:
    """Whatever stands on a command line."""
    with contextlib.suppress(GpuprofError):
        gpuprof.plan(OWN, {"A": 1}, overrides=overrides)


@given(
    st.dictionaries(
        st.sampled_from(["STEPS", "RANKS", "GROUPS", "BACKEND", "FILE_NAME", "X"]).map(
            "GPUPROF_".__add__
        ),
        st.text(),
    )
)
def test_no_variable_is_too_wrong(environ: dict[str, str]) -> None:
    """Whatever the environment holds."""
    with contextlib.suppress(GpuprofError):
        load(OWN, environ=environ)
