"""Discovery: what is found, and how what is broken is told apart from the rest."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from gpuprof._config.load import load
from gpuprof._config.programs import with_own_programs
from gpuprof._plan.planner import Planner
from gpuprof.backend import loading
from gpuprof.errors import ConfigError, PluginError

BACKEND = """
import attrs, gpuprof

@attrs.frozen
class Options:
    pass

class Backend:
    Options = Options
    def __init__(self, options):
        pass
    @gpuprof.backend.hookimpl
    def render_command(self, command):
        return ["mine", *command.interpreter]
"""


def planner(**data: Any) -> Planner:
    return Planner(load({"worker_groups": "all", **data}), "run", "/out")


def test_a_third_party_backend_is_found(install: Any) -> None:
    """An entry point is all it takes."""
    install(BACKEND, mine="Backend")
    assert ("mine", "{interpreter}") == planner(backend="mine").worker("A", 0).command


def test_a_broken_backend_is_named_with_its_distribution(install: Any) -> None:
    """The message says whose fault it is, and what the fault is."""
    install("raise RuntimeError('needs a licence')", broken="Backend")
    with pytest.raises(
        PluginError,
        match=r"backend: 'broken' \(plugin_\d+\) fails to import: RuntimeError: needs a licence",
    ):
        planner(backend="broken")


def test_a_backend_that_nobody_knows_has_a_remedy() -> None:
    """The message says for which Python to install it."""
    with pytest.raises(
        PluginError, match=f"Install the package .* for {re.escape(sys.executable)}"
    ):
        planner(backend="strace")


def test_a_missing_module_of_a_backend_has_a_remedy(install: Any) -> None:
    """The message says what to install."""
    install("import no_such_module", broken="Backend")
    with pytest.raises(
        PluginError, match=r"No module named 'no_such_module'; (\w+) or .*: pip install \1"
    ):
        planner(backend="broken")


def test_a_broken_plugin_takes_nobody_down(install: Any) -> None:
    """Plugins that were not asked for are not even imported."""
    install("raise RuntimeError", broken="Backend")
    assert planner(backend="nsight").worker("A", 0).profiled


def test_two_distributions_with_one_name(install: Any) -> None:
    """Neither is chosen in silence."""
    install(BACKEND, mine="Backend")
    install(BACKEND, mine="Backend")
    with pytest.raises(
        PluginError, match=r"'mine' is provided by plugin_\d+ and plugin_\d+; uninstall one of them"
    ):
        planner(backend="mine")


def test_a_misspelt_hook_is_an_error(install: Any) -> None:
    """A hook that nobody would ever call is found before the job starts."""
    install(BACKEND.replace("render_command", "render_comand"), mine="Backend")
    with pytest.raises(PluginError, match=r"breaks the contract: .*render_comand"):
        planner(backend="mine")


def test_an_unknown_argument_is_an_error(install: Any) -> None:
    """A hook may leave arguments out, but not invent some."""
    install(BACKEND.replace("self, command", "self, comand"), mine="Backend")
    with pytest.raises(PluginError, match=r"breaks the contract: .*comand"):
        planner(backend="mine")


def test_a_backend_without_options_is_none(install: Any) -> None:
    """Something else under the entry point is refused."""
    install("Backend = object", mine="Backend")
    with pytest.raises(
        PluginError, match="'mine' is not a backend: it has no attrs class `Options`"
    ):
        planner(backend="mine")


@pytest.mark.parametrize("hook", ["render_command", "open_range"])
def test_an_extra_plugin_keeps_to_its_part(install: Any, hook: str) -> None:
    """Two renderings or two ranges would contradict each other."""
    install(
        "import gpuprof.backend\nclass Extra:\n    @gpuprof.backend.hookimpl\n    def "
        f"{hook}(self):\n        pass\n",
        plugins={"extra": "Extra"},
    )
    with pytest.raises(
        PluginError, match=f"plugins: 'extra' implements {hook}, reserved for the backend"
    ):
        planner(backend="nsight", plugins=["extra"])


def test_a_missing_plugin_is_named_by_its_key() -> None:
    """The key's path is the position in the list."""
    with pytest.raises(PluginError, match=r"^plugins\[0\]: 'nowhere' is not installed"):
        planner(backend="nsight", plugins=["nowhere"])


def test_our_own_backends_are_known_before_they_are_installed() -> None:
    """The extra `backends` names them; a section of the configuration is named as its backend."""
    assert {"nsight", "rocprof_sys"} == loading.own_backends()


def test_an_extra_of_a_framework_is_no_backend(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """An extra that installs a distribution of its own name may be anything."""
    monkeypatch.setattr(
        loading.importlib.metadata,
        "requires",
        lambda _: [
            "gpuprof-verl<0.2,>=0.1; extra == 'verl'",
            "gpuprof-rocprof-sys<0.2,>=0.1; extra == 'backends'",
            "gpuprof-rocprof-sys<0.2,>=0.1; extra == 'rocprof-sys'",
        ],
    )
    loading._required_by.cache_clear()
    request.addfinalizer(loading._required_by.cache_clear)
    assert {"rocprof_sys"} == loading.own_backends()


def test_an_extra_plugin_that_cannot_be_made(install: Any) -> None:
    """A fault of its own, told before anything starts."""
    install(
        "class Extra:\n    def __init__(self):\n        raise OSError('no disk')\n",
        plugins={"extra": "Extra"},
    )
    with pytest.raises(PluginError, match="plugins: 'extra' failed to start: OSError: no disk"):
        planner(backend="none", plugins=["extra"])


RIVAL = """
import gpuprof.backend
class Rival:
    exclusive = ("the counters", "CUPTI")
    @gpuprof.backend.hookimpl
    def start_capture(self):
        pass
"""


def test_two_that_need_one_resource_are_refused(install: Any) -> None:
    """The plan refuses a second client of CUPTI in one process, by name."""
    install(RIVAL, plugins={"rival": "Rival", "other": "Rival"})
    needs = "both need CUPTI, which takes one client in a process"
    with pytest.raises(
        PluginError, match=f"plugins: 'rival' and the backend cannot be in one worker: {needs}"
    ):
        planner(backend="nsight", plugins=["rival"])
    with pytest.raises(
        PluginError,
        match="plugins: 'other' and 'rival' cannot be in one worker: both need the counters, which",
    ):
        planner(backend="none", plugins=["rival", "other"])
    planner(backend="none", plugins=["rival"])


def test_two_backends_are_refused_together() -> None:
    """A worker has one; the message says which key names it."""
    with pytest.raises(
        PluginError,
        match=r"^plugins\[0\]: 'nsight' is not installed as a plugin: it is a backend; ",
    ):
        planner(backend="torch_profiler", plugins=["nsight"])


def test_a_plugin_is_no_backend(install: Any) -> None:
    """The message says which key names it."""
    install(RIVAL, plugins={"rival": "Rival"})
    with pytest.raises(
        PluginError,
        match=r"'rival' is not installed as a backend: it is a plugin; set plugins: \[ri",
    ):
        planner(backend="rival")


WITH_OPTIONS = """
import attrs
from gpuprof.backend import hookimpl, option

@attrs.frozen
class Options:
    every: int = option("Samples per second.", default=1)
    reader: str = option("Program that reads them.", default="read", program=True)

class Sampler:
    Options = Options
    def __init__(self, options):
        self.options = options
    @hookimpl
    def inject_env(self):
        return {"EVERY": str(self.options.every), "READER": self.options.reader}
"""


def test_a_plugin_has_options(install: Any) -> None:
    """Its section is beside the backend's, and differs from group to group."""
    install(WITH_OPTIONS, plugins={"sampler": "Sampler"})
    groups = {"B": {"sampler": {"every": 7}}}
    made = planner(
        backend="nsight", plugins=["sampler"], sampler={"reader": "/bin/r"}, groups=groups
    )
    assert ["1", "7"] == [made.worker(group, 0).environment["EVERY"] for group in ("A", "B")]
    row = made.row(made.worker("B", 0), [], None)
    assert {"sampler": {"every": 7, "reader": "/bin/r"}} == row["plugin_options"]


def test_options_of_a_plugin_are_checked(install: Any) -> None:
    """The full path of the key, and what is valid."""
    install(WITH_OPTIONS, plugins={"sampler": "Sampler"})
    with pytest.raises(ConfigError, match=r"^sampler.evry: unknown key; did you mean 'every'"):
        planner(backend="nsight", plugins=["sampler"], sampler={"evry": 7})


def test_a_validator_of_a_plugin_names_the_key(install: Any) -> None:
    """In attrs' words, without the objects that attrs puts behind them."""
    checked = 'option("Samples per second.", default=1, validator=attrs.validators.in_([1, 2]))'
    install(
        WITH_OPTIONS.replace('option("Samples per second.", default=1)', checked),
        plugins={"sampler": "Sampler"},
    )
    with pytest.raises(ConfigError) as error:
        planner(backend="nsight", plugins=["sampler"], sampler={"every": 7})
    assert ("sampler.every: 'every' must be in [1, 2] (got 7)",) == error.value.problems


def test_programs_of_a_plugin_are_the_readers_own(install: Any) -> None:
    """The files of a run may be anybody's, so no program that they name is run."""
    install(WITH_OPTIONS, plugins={"sampler": "Sampler"})
    settings = {"backend": "none", "plugins": ["sampler"], "sampler": {"every": 2, "reader": "/x"}}
    assert {**settings, "sampler": {"every": 2}} == with_own_programs(settings)


def test_a_former_name_of_an_option_is_read_with_a_warning(install: Any) -> None:
    """The warning names the key by its path, and today's name."""
    renamed = WITH_OPTIONS.replace("default=1", 'default=1, formerly=("rate",)')
    install(renamed, plugins={"sampler": "Sampler"})
    settings = {"backend": "nsight", "plugins": ["sampler"], "worker_groups": "all"}
    config = load({**settings, "sampler": {"rate": 5}, "groups": {"B": {"sampler": {"rate": 7}}}})
    assert (
        "sampler.rate: deprecated; rename it to every",
        "groups.B.sampler.rate: deprecated; rename it to every",
    ) == config.source.notes
    made = Planner(config, "run", "/out")
    assert ["5", "7"] == [made.worker(group, 0).environment["EVERY"] for group in ("A", "B")]
    with pytest.raises(
        ConfigError, match=r"^sampler.rate: deprecated, and every is set, too; remove it$"
    ):
        load({**settings, "sampler": {"rate": 5, "every": 5}})
