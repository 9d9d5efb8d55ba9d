"""The command line, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from gpuprof import _cli


def run(*words: str) -> str:
    """What a command prints."""
    result = CliRunner().invoke(_cli.main, words)
    assert 0 == result.exit_code, result.output
    return result.stdout


def test_help_lists_the_commands() -> None:
    """The table of commands is part of the help."""
    assert [] == [name for name in _cli.COMMANDS if name not in run("--help")]


def test_a_plugin_that_fails_to_import_is_listed(install) -> None:
    """A broken plugin is shown with its error, and the others beside it."""
    install("raise RuntimeError('no driver')", broken="Broken")
    found = {plugin["name"]: plugin for plugin in json.loads(run("backends", "--json"))}
    assert "no driver" in found["broken"]["error"]
    assert found["nsight"]["error"] is None


PROBES = """
import gpuprof.backend
class P:
    @gpuprof.backend.hookimpl
    def probe(self): return TOOL
    @gpuprof.backend.hookimpl
    def missing_tool(self): return 'get it'
"""


def test_backends_shows_what_is_found_and_what_is_not(install) -> None:
    """The program's path and version; or how to get it; or that none is needed."""
    for name, program in (("there", "gpuprof.backend.Tool('/bin/x', '1.2')"), ("gone", "None")):
        install(PROBES.replace("TOOL", program), **{name: "P"})
    install("class P: pass", idle="P")
    found = {plugin["name"]: plugin for plugin in json.loads(run("backends", "--json"))}
    tool = {
        "path": "/bin/x",
        "version": "1.2",
        "features": {},
        "shared_temporary": [],
        "disposable_temporary": [],
    }
    assert (tool, None) == (
        found["there"]["tool"],
        found["there"]["missing"],
    )
    assert (None, "get it") == (found["gone"]["tool"], found["gone"]["missing"])
    assert (None, None) == (found["idle"]["tool"], found["idle"]["missing"])
    printed = run("backends")
    assert [] == [text for text in ("/bin/x 1.2", "get it", "needs none") if text not in printed]


def test_a_backend_that_has_to_be_told_something_is_not_broken(install) -> None:
    """Without its options it cannot be tried; what it implements can be said all the same."""
    source = (
        "import attrs, gpuprof\n@attrs.frozen\nclass Options:\n    key: str\nclass Told:\n    "
        "Options = Options\n"
    )
    source += (
        "    def __init__(self, options): pass\n    @gpuprof.backend.hookimpl\n    def "
        "start_capture(self): pass\n"
    )
    install(source, told="Told")
    (found,) = (
        plugin for plugin in json.loads(run("backends", "--json")) if plugin["name"] == "told"
    )
    assert (["start_capture"], None, "not checked: it has required options: key") == (
        found["hooks"],
        found["error"],
        found["missing"],
    )


OPTIONS = """
import attrs, gpuprof
from typing import Literal
KEYS = [gpuprof.backend.Key("v verbose", "integer", "talk", "run", "1.6")]
@attrs.frozen
class Inner:
    depth: int = gpuprof.backend.option("how deep", default=3)
@attrs.frozen
class Options:
    mode: Literal["fast", "slow"] = gpuprof.backend.option("how it goes", default="fast")
    args: dict[str, int] = gpuprof.backend.option("for the tool", factory=dict, keys=KEYS)
    inner: Inner | None = gpuprof.backend.option("more", default=None)
class Backend:
    Options = Options
    def __init__(self, options): pass
"""


def test_options_of_a_backend(install) -> None:
    """Each key with its path, valid values, default and help, followed by the keys inside it."""
    install(OPTIONS, mine="Backend")
    found = [
        tuple(option.values())
        for option in json.loads(run("backends", "--options", "mine", "--json"))
    ]
    assert [
        ("mine.mode", "fast or slow", "fast", "how it goes", "", "", ""),
        ("mine.args", "a mapping", "{}", "for the tool", "", "", ""),
        ("mine.args.v verbose", "an integer", None, "talk", "", "run", "1.6"),
        ("mine.inner", "a mapping or null", "null", "more", "", "", ""),
        ("mine.inner.depth", "an integer", "3", "how deep", "", "", ""),
    ] == found
    assert "from 1.6" in run("backends", "--options", "mine")


def test_options_of_a_backend_that_is_not_there() -> None:
    """The name is refused, with those that there are."""
    result = CliRunner().invoke(_cli.main, ["backends", "--options", "nsigt"])
    assert (2, True) == (result.exit_code, "did you mean 'nsight'?" in result.output)


CONFIG = "backend: nsight\nworker_groups: [ActorGroup]\nsteps: [3]\n"


def refused(*words: str) -> str:
    """What a command says on stderr when it refuses its input."""
    result = CliRunner().invoke(_cli.main, words)
    assert (2, "") == (result.exit_code, result.stdout)
    return result.stderr


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration file."""
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    return str(file)


def test_plan_prints_rows_and_warnings(config: str) -> None:
    """The plan as text, with the override applied."""
    printed = run("plan", config, "steps=[3,10]", "--workers", "ActorGroup=1:1,Actor=1:0")
    assert "ActorGroup-0: profiled" in printed
    assert "windows      step-3, step-10" in printed
    assert (
        f"warning: {config}: worker_groups: ActorGroup is selected, but its channel Actor is not"
        in " ".join(printed.split())
    )


def test_plan_of_one_worker_and_of_all(config: str) -> None:
    """Folded by default, with the options that unfold it; one worker in full; each in full."""
    words = ("plan", config, "steps=[3,10]", "--workers", "ActorGroup=3:1")
    assert "ActorGroup-[0-2]: profiled" in run(*words)
    assert "--worker GROUP-RANK shows one worker in full, --all each of them" in run(*words)
    one = run(*words, "--worker", "ActorGroup-1")
    assert 2 == one.count("/ActorGroup-1.step-")
    assert "ActorGroup-2" not in one
    assert "ActorGroup-2: profiled" in run(*words, "--all")
    assert "--worker: 'ActorGroup-7' is not a worker" in refused(*words, "--worker", "ActorGroup-7")


@pytest.mark.parametrize(
    ("words", "total"),
    [
        (["--for", "run"], "2 of 2 workers profiled"),
        (["--for", "run", "worker_groups=null"], "0 of 2 workers profiled"),
        (["--for", "run", "worker_groups=Critic"], "0 of 2 workers profiled"),
        (["--for", "ray"], "0 of 2 workers profiled"),
        ([], "0 of 2 workers profiled"),
    ],
)
def test_plan_knows_the_launcher(tmp_path: Path, words: list[str], total: str) -> None:
    """`gpuprof run` selects each process's own group where the key is left out; Ray does not."""
    file = tmp_path / "spmd.yaml"
    file.write_text("backend: nsight\nsteps: [3]\n")
    printed = run("plan", str(file), "--workers", "Trainer=2", *words)
    assert total in printed
    left_out = "worker_groups" not in " ".join(words)
    assert (left_out and total.startswith("0")) == (
        left_out and "gpuprof run selects each process's own group" in " ".join(printed.split())
    )


def test_plan_for_run_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `gpuprof run` has it: a launcher's rank is of the group Worker, another program is not."""
    file = tmp_path / "spmd.yaml"
    file.write_text("backend: nsight\nsteps: [3]\n")
    assert "Program-0: profiled" in run("plan", str(file), "--for", "run")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    assert "Worker-0: profiled" in run("plan", str(file), "--for", "run")


def test_plan_as_json(config: str) -> None:
    """The same for programs."""
    made = json.loads(run("plan", config, "--workers", "ActorGroup=2", "--json"))
    assert [0, 1] == [row["rank"] for row in made["workers"]]


def test_plan_of_a_config_that_is_wrong(config: str) -> None:
    """All problems on stderr, exit code 2."""
    said = refused("plan", config, "stpes=[3]", "ranks=[-1]")
    assert "stpes: unknown key; did you mean 'steps'?" in said
    assert "ranks[0]: -1 is not valid" in said


def test_plan_for_a_shell(config: str) -> None:
    """One worker's line, where the tool is there; a worker that is not profiled has none."""
    line = run("plan", config, "nsight.executable=/bin/true", "--shell", "ActorGroup-0")
    assert line.startswith("mkdir -p ")
    assert "{" not in line
    assert "EnvGroup-0: does not run under the profiler" in refused(
        "plan", config, "--shell", "EnvGroup-0"
    )
    assert "'x' is not valid; expected a group and a rank" in refused(
        "plan", config, "--shell", "x"
    )
    said = refused(
        "plan", config, "--shell", "ActorGroup-7", "--workers", "ActorGroup=2,EnvGroup=1"
    )
    assert (
        "--shell: 'ActorGroup-7' is not a worker; the plan has these groups (ranks): "
        "ActorGroup (2), EnvGroup (1)" in said
    )


def test_config_show_is_what_is_in_force(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, variables and overrides together, as YAML that can be used in their place."""
    monkeypatch.setenv("GPUPROF_RANKS", "0,2:4")
    shown = yaml.safe_load(run("config", "show", config, "+profiling.steps=[3,4]"))
    assert {
        "backend": "nsight",
        "worker_groups": ["ActorGroup"],
        "ranks": [0, "2:4"],
        "steps": ["3:5"],
    } == shown


def test_overrides_may_be_options(config: str) -> None:
    """As those of `gpuprof run`."""
    shown = run("config", "show", config, "--set", "ranks=[1]", "steps=[7]")
    assert run("config", "show", config, "ranks=[1]", "steps=[7]") == shown
    assert "--set: 'ranks' is not valid; expected KEY=VALUE" in refused(
        "config", "show", config, "--set", "ranks"
    )


def test_config_show_hides_secrets(config: str) -> None:
    """They are in the file, and need not be on a screen; converting keeps them."""
    secrets = ["nsight.env.API_TOKEN=hunter2", "nsight.env.DATABASE=x3"]
    shown = run("config", "show", config, *secrets)
    assert ("hunter2" in shown, "x3" in shown) == (False, False)


def test_config_validate(config: str) -> None:
    """The backend's options are looked at as well."""
    assert run("config", "validate", config).startswith("valid: backend nsight")
    assert "nsight.flgs: unknown key; did you mean 'flags'?" in refused(
        "config", "validate", config, "nsight.flgs=[]"
    )


@pytest.mark.nsys
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nsight.options={t: nvtx, tt: 3}"], ["nsight.options.tt: ", "unrecognised option"]),
        (["nsight.options.t=cuda,foo"], ["nsight.options.t: ", "Illegal --trace argument 'foo'"]),
        (["options.t=cuda,foo"], [": options.t: ", "Illegal --trace argument 'foo'"]),
        (
            ["groups.ActorGroup.nsight.options.sample=bogus"],
            ["groups.ActorGroup.nsight.options.sample: ", "Illegal --sample argument: bogus"],
        ),
    ],
)
def test_the_tool_of_this_machine_reads_the_options(
    config: str, words: list[str], said: list[str]
) -> None:
    """Validating refuses what it refuses, in its words; so does a plan, which is still shown."""
    refusal = refused("config", "validate", config, *words)
    assert [] == [text for text in said if text not in refusal.replace("gpuprof", ":", 1)]
    planned = CliRunner().invoke(_cli.main, ["plan", config, *words, "--workers", "ActorGroup=2:1"])
    assert 2 == planned.exit_code
    assert "2 of 2 workers profiled" in planned.stdout
    assert [] == [text for text in said if text not in planned.stderr.replace("gpuprof", ":", 1)]


@pytest.mark.nsys
def test_the_tool_of_this_machine_takes_the_options(config: str) -> None:
    """The costliest preset too, on a machine without a GPU: nothing is recorded."""
    assert "not on this machine" not in run("config", "validate", config)
    words = ("plan", config, "--workers", "ActorGroup=1:1")
    assert "not on this machine" not in run(*words)


def test_without_the_tool_nobody_has_read_the_options(config: str) -> None:
    """Validating and planning say so, and where they will be read."""
    note = (
        "note: nsight: its program is not on this machine, so it was not asked about its options; "
        "gpuprof doctor asks it on a node"
    )
    gone = "nsight.executable=/nonexistent/nsys"
    assert note in " ".join(run("config", "validate", config, gone).split())
    words = ("plan", config, gone, "--workers", "ActorGroup=1:1")
    assert note in " ".join(run(*words).split())
    assert "not on this machine" not in run("config", "validate", config, "enabled=false", gone)


@pytest.mark.parametrize("groups", ["all", "Actor*", "ActorGroup"])
def test_config_validate_says_what_is_doubtful(groups: str) -> None:
    """What the plan would say of the options, once, whoever the workers are."""
    words = [
        "backend=rocprof_sys",
        f"worker_groups={groups}",
        "ranks=[3,4]",
        "rocprof_sys.strict=false",
        "rocprof_sys.args.T=hip",
    ]
    said = run("config", "validate", *words).replace("\n      ", " ").splitlines()
    doubt = (
        "note: passed on anyway: args.T: rocprof-sys-python has no such option; strict: true sets "
        "ROCPROFSYS_ROCM_DOMAINS="
    )
    assert ("valid: backend rocprof_sys", [doubt]) == (
        said[0],
        [line[: len(doubt)] for line in said[1:] if "not on this machine" not in line],
    )
    assert ["valid: backend none"] == run("config", "validate", "backend=none").splitlines()
    assert "backend: 'strace' is not installed" in refused("config", "validate", "backend=strace")
    assert "note: no configuration, so nothing is profiled" in run("config", "validate")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("steps", ["steps: Global steps", "default  null", "GPUPROF_STEPS"]),
        ("cluster.profiling.backend", ["default  none; required"]),
        ("groups.ActorGroup.nsight.executable", ["nsight.executable: ", "default  nsys"]),
        ("nsight", ["nsight.options: ", "nsight.flags: "]),
    ],
)
def test_config_explain(key: str, words: list[str]) -> None:
    """One key of ours or of a backend, wherever it may stand, or a backend's whole section."""
    explained = run("config", "explain", key)
    assert [] == [word for word in words if word not in explained]


@pytest.mark.parametrize("key", ["stpes", "nsight.optoins"])
def test_config_explain_of_no_key(key: str) -> None:
    """The nearest key is told."""
    assert "unknown key; did you mean" in refused("config", "explain", key)


def test_config_convert() -> None:
    """Another system's settings as ours, with what is different in comments."""
    theirs = ["NRL_NSYS_WORKER_PATTERNS=*policy*", "NRL_NSYS_PROFILE_STEP_RANGE=3:5"]
    converted = yaml.safe_load(run("config", "convert", "--from", "nemo-rl", *theirs))
    assert (["*policy*"], ["3:5"], True) == (
        converted["worker_groups"],
        converted["steps"],
        converted["continuous"],
    )
    assert "--from is required" in refused("config", "convert")


def test_an_unknown_option_that_is_a_key() -> None:
    """It names the way to set a key."""
    assert "--output-dir: not an option but a key" in refused("run", "--output-dir", "x", "true")
    assert "No such option" in refused("run", "--nonsense", "true")
