"""What may come out of plugins' code, and what their hooks may return."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from gpuprof._config.load import load
from gpuprof._config.schema import FLAT_KEYS, KEYS, RECORDING_KEYS
from gpuprof._config.sources import SECTIONS
from gpuprof._doctor import installed
from gpuprof._plan.planner import Planner
from gpuprof.backend import hookspecs, loading
from gpuprof.backend.boundary import _RESULTS, normalise
from gpuprof.backend.types import Check, Collected, RangeTimes, RecordedTrack, Tool
from gpuprof.errors import ConfigError, PluginError

Install = Callable[..., str]

BACKEND = """
import attrs, pathlib, sys, gpuprof.backend
from gpuprof.backend import hookimpl

class Panic(BaseException):
    pass

@attrs.frozen
class Options:
    does: str = ""

class Backend:
    Options = Options
    def __init__(self, options):
        self.does = options.does
        if self.does == "made":
            sys.exit(3)
    @hookimpl
    def start_capture(self):
        pass
    @hookimpl
    def plan_notes(self):
        if self.does == "exits":
            sys.exit(3)
        if self.does == "panics":
            raise Panic("index out of bounds")
        if self.does == "interrupted":
            raise KeyboardInterrupt
        if self.does == "text":
            return "a note"
    @hookimpl
    def expected_files(self):
        return {1: pathlib.Path("/out/a")}

class Wrapper:
    @gpuprof.backend.hookimpl(wrapper=True)
    def start_capture(self):
        return (yield)
"""


def planner(**data: Any) -> Planner:
    return Planner(load({"worker_groups": "all", "backend": "odd", **data}), "run", "/out")


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("exits", r"plan_notes of plugin_\d+ raised SystemExit: 3"),
        ("panics", r"plan_notes of plugin_\d+ raised Panic: index out of bounds"),
        ("made", r"the class of plugin_\d+ raised SystemExit: 3"),
        (
            "text",
            r"plan_notes of plugin_\d+ returned 'a note'; expected a list of strings, or None",
        ),
    ],
)
def test_a_fault_is_an_error_that_names_the_distribution(
    does: str, message: str, install: Install
) -> None:
    """What would end the process ends only the plan, as does a result of a wrong type."""
    install(BACKEND, odd="Backend")
    with pytest.raises(PluginError, match=f"^{message}"):
        planner(odd={"does": does}).worker("A", 0)


def test_ctrl_c_passes(install: Install) -> None:
    """The user interrupts the job, whatever runs at that moment."""
    install(BACKEND, odd="Backend")
    with pytest.raises(KeyboardInterrupt):
        planner(odd={"does": "interrupted"}).worker("A", 0)


def test_paths_are_strings_in_the_plan(install: Install) -> None:
    """Any path of Python's is accepted, and is a string from then on."""
    install(BACKEND, odd="Backend")
    assert {1: "/out/a"} == planner().worker("A", 0).files


def test_a_plugin_that_exits_at_import_does_not_hide_the_others(install: Install) -> None:
    """`gpuprof backends` and `gpuprof doctor` list it as broken."""
    install("import sys; sys.exit('no licence')", exiting="Backend")
    install(BACKEND, odd="Backend")
    found = {plugin.name: plugin for plugin in installed.survey()}
    assert "fails to import: it raised SystemExit: no licence" in str(found["exiting"].error)
    assert found["odd"].error is None


def test_a_wrapper_of_hooks_is_refused(install: Install) -> None:
    """A wrapper would change what another plugin says."""
    install(BACKEND, odd="Backend", plugins={"wrapper": "Wrapper"})
    with pytest.raises(PluginError, match="start_capture is a hook wrapper"):
        planner(plugins=["wrapper"])


CHECK = Check("a", False, "b", "c", "title")
GOOD: list[tuple[str, Any, Any]] = [
    ("render_command", ("env", Path("/bin/x")), ["env", "/bin/x"]),
    ("inject_env", {"A": Path("/a"), "B": None}, {"A": "/a", "B": None}),
    ("start_capture", object(), None),
    ("stop_capture", [Path("/a")], ["/a"]),
    ("probe", Tool(Path("/a")), Tool("/a")),  # type: ignore[arg-type]
    ("diagnose", (CHECK,), [CHECK]),
    ("expected_files", {1: Path("/a")}, {1: "/a"}),
    ("collect_files", Collected({1: (Path("/a"),)}), Collected({1: ["/a"]})),  # type: ignore[dict-item]
    ("read_ranges", (RangeTimes("a", [1]),), [RangeTimes("a", (1,))]),  # type: ignore[arg-type]
    ("read_spans", (RecordedTrack("ranges", []),), [RecordedTrack("ranges", [])]),
]


@pytest.mark.parametrize(("hook", "given", "expected"), GOOD)
def test_results_are_normalised(hook: str, given: Any, expected: Any) -> None:
    """Paths become strings, sequences lists."""
    assert expected == normalise(hook, given)


BAD: list[tuple[str, Any]] = [
    ("render_command", "env python"),
    ("render_command", ["env", 3]),
    ("inject_env", {"A": 1}),
    ("inject_env", {"A=B": "1"}),
    ("inject_env", ["A"]),
    ("stop_capture", "/a"),
    ("stop_capture", [b"/a"]),
    ("stop_capture", {1: "/a"}),
    ("probe", "/a"),
    ("missing_tool", ["pip install"]),
    ("diagnose", "no"),
    ("diagnose", ("title", "no")),
    ("diagnose", Check("a", True, "b")),
    ("diagnose", [("a", True)]),
    ("plan_notes", "a note"),
    ("expected_files", ["/a"]),
    ("expected_files", {"step-1": "/a"}),
    ("expected_files", {True: "/a"}),
    ("collect_files", {1: ["/a"]}),
    ("collect_files", Collected({1: "/a"})),  # type: ignore[dict-item]
    ("read_ranges", {"a": 1}),
    ("read_spans", RecordedTrack("ranges", [])),
    ("check_report", True),
]


@pytest.mark.parametrize(("hook", "given"), BAD)
def test_results_of_a_wrong_type_are_refused(hook: str, given: Any) -> None:
    """The message says what is expected, and that nothing is needed."""
    with pytest.raises(TypeError, match=r"^expected an? .*, or None$"):
        normalise(hook, given)


def test_every_hook_has_a_check_of_its_result() -> None:
    """Except `start_capture`, which returns nothing, and `open_range`, which contains itself."""
    assert {*hookspecs.__all__} - {"start_capture", "open_range"} == {*_RESULTS}
    assert {hook for hook, _ in BAD} == {*_RESULTS}


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Tool, (3,)),
        (Tool, ("/a", 1.0)),
        (Check, ("a", "yes", "b")),
        (Check, ("a", True, None)),
        (RangeTimes, ("a", (0.5,))),
        (RangeTimes, ("a", (1,), {"kernels": 0.5})),
        (RangeTimes, ("a", (1,), {}, "train")),
    ],
)
def test_values_check_their_types(kind: Any, arguments: tuple[Any, ...]) -> None:
    """A wrong one is found where its author makes it."""
    with pytest.raises(TypeError):
        kind(*arguments)


@pytest.mark.parametrize("hook", loading.BACKEND_ONLY)
def test_hooks_with_one_answer_are_the_backends(hook: str, install: Install) -> None:
    """An extra plugin could override the backend's answer: it is refused with what it may have."""
    install(BACKEND, odd="Backend")
    lines = ["import gpuprof.backend", "class Extra:", f"    def {hook}(self): pass"]
    lines.insert(2, "    @gpuprof.backend.hookimpl")
    install("\n".join(lines), plugins={"extra": "Extra"})
    with pytest.raises(
        PluginError,
        match=f"'extra' implements {hook}, reserved for the backend; valid: diagnose, inject_env",
    ):
        planner(plugins=["extra"])


VARIABLES = """
import attrs
from gpuprof.backend import hookimpl

@attrs.frozen
class Options:
    pass

class Base:
    Options = Options
    def __init__(self, options):
        pass
class Sets(Base):
    @hookimpl
    def inject_env(self):
        return {"COUNTERS": "all", "SHARED": "1"}
class Differs(Base):
    @hookimpl
    def inject_env(self):
        return {"COUNTERS": "none", "SHARED": "1"}
class Agrees(Base):
    @hookimpl
    def inject_env(self):
        return {"OTHER": None, "SHARED": "1"}
class Nothing(Base):
    @hookimpl
    def plan_notes(self):
        return []
"""


@pytest.fixture
def _variables(install: Install) -> None:
    plugins = {"differs": "Differs", "agrees": "Agrees"}
    install(VARIABLES, sets="Sets", nothing="Nothing", plugins=plugins)


@pytest.mark.usefixtures("_variables")
def test_two_values_of_one_variable_are_refused() -> None:
    """Neither wins in silence: the error names both plugins and the variable."""
    with pytest.raises(
        PluginError,
        match=r"^plugins: 'sets' and 'differs' set the variable COUNTERS to different values",
    ):
        planner(backend="sets", plugins=["differs"]).worker("A", 0)
    agreed = planner(backend="sets", plugins=["agrees"]).worker("A", 0)
    assert {"COUNTERS": "all", "SHARED": "1", "OTHER": None} == agreed.environment


@pytest.mark.usefixtures("_variables")
def test_a_backend_of_variables_only(install: Install) -> None:
    """Its variables are set, and the plan says how far they reach."""
    planned = planner(backend="sets", steps=[3]).worker("A", 0)
    assert planned.wrapped
    (note,) = planned.notes
    assert note == (
        "sets only sets variables, which act for the worker's whole life; steps do not limit what "
        "it records"
    )


@pytest.mark.usefixtures("_variables")
def test_a_backend_that_does_nothing_is_refused() -> None:
    """Otherwise a job would run unprofiled, with nothing said."""
    with pytest.raises(PluginError, match=r"^backend: 'nothing' does nothing to a worker"):
        planner(backend="nothing").worker("A", 0)


def test_the_words_of_the_configuration_are_reserved() -> None:
    """Every key and section, and the backend that is built in."""
    sections = {section.partition(".")[0] for section in SECTIONS}
    assert {"none", *KEYS, *RECORDING_KEYS, *FLAT_KEYS, *sections} == loading.RESERVED


@pytest.mark.parametrize("name", ["steps", "none", "backend"])
def test_a_reserved_name_is_refused(name: str, install: Install) -> None:
    """It is listed as broken, and the key of that name keeps its meaning."""
    module = install(VARIABLES, **{name: "Sets", "sets": "Sets"})
    (found,) = (plugin for plugin in installed.survey() if plugin.name == name)
    assert f"cannot name a plugin; rename the entry point of {module}" in str(found.error)
    assert planner(backend="sets", steps=[3]).worker("A", 0).profiled
    if name != "none":
        with pytest.raises(ConfigError, match=f"^backend: {name!r} is reserved by gpuprof's"):
            planner(backend=name, steps=[3])
    with pytest.raises(PluginError, match=rf"^plugins\[0\]: {name!r} is reserved by gpuprof's"):
        planner(backend="sets", plugins=[name])


def test_what_a_signal_handler_raises_passes(install: Install) -> None:
    """A job that ends on SIGTERM also ends when the signal arrives inside a hook."""
    source = BACKEND.replace('return "a note"', "import os; os.kill(os.getpid(), 15)")
    install(source, odd="Backend")

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(7)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(SystemExit, match="7"):
            planner(odd={"does": "text"}).worker("A", 0)
    finally:
        signal.signal(signal.SIGTERM, before)
