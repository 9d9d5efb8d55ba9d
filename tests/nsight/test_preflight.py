"""What nsys itself says of options, before anything starts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import attrs
import pytest
from gpuprof.backend import Tool, Window, Worker
from gpuprof_nsight._checks.preflight import refusal
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._nsys import find, trial

WITHOUT_GPU = Worker("run", "EnvGroup", 0, "node", "1", "/out", (Window(1, 3, 4),))


@pytest.mark.nsys
@pytest.mark.parametrize("key", ["sample", "s", "cpuctxsw", "backtrace", "cudabacktrace"])
def test_options_that_a_worker_without_a_gpu_does_not_get_are_read(key: str) -> None:
    """A value that nsys refuses is refused by its key; accepted ones are not run."""
    tool = Tool(str(shutil.which("nsys")), None)
    given = {
        "t": "nvtx",
        "sample": "process-tree",
        "cpuctxsw": "process-tree",
        "cudabacktrace": "all",
        "backtrace": "fp",
    }
    if key == "s":
        del given["sample"]
    refused = refusal(WITHOUT_GPU, tool, NsightOptions(options={**given, key: "nonsense"}))
    assert refused is not None
    assert f"options.{key}" == refused[0]
    assert "nonsense" == refused[1].partition("argument: ")[2].partition(".")[0].split()[0]


@pytest.mark.nsys
@pytest.mark.parametrize("key", ["x", "stop-on-exit"])
def test_an_option_that_gpuprof_does_not_know_is_named(key: str) -> None:
    """A refused option is named as it was given, by letter or by its long name."""
    tool = Tool(str(shutil.which("nsys")), None)
    refused = refusal(WITHOUT_GPU, tool, NsightOptions(options={"t": "nvtx", key: "1"}))
    assert refused is not None
    assert f"options.{key}" == refused[0]


@pytest.mark.nsys
def test_a_flag_that_needs_a_value_is_named() -> None:
    """It does not take the program for its value, after which nsys would blame the options."""
    tool = Tool(str(shutil.which("nsys")), None)
    refused = refusal(WITHOUT_GPU, tool, NsightOptions(options={"t": "nvtx"}, flags=["stats"]))
    assert refused is not None
    assert ("flags", "the required argument for option '--stats' is missing") == refused


@pytest.mark.nsys
def test_options_that_nsys_takes_are_not_refused() -> None:
    """With and without those that are left out."""
    tool = Tool(str(shutil.which("nsys")), None)
    assert [None, None] == [
        refusal(WITHOUT_GPU, tool, options)
        for options in (NsightOptions(), NsightOptions(preset="light"))
    ]


@pytest.mark.nsys
@pytest.mark.parametrize("gate", ["auto", "session"])
@pytest.mark.parametrize("key", ["c", "capture-range"])
def test_a_capture_range_that_does_not_exist_is_refused(key: str, gate: Any) -> None:
    """Nothing could be recorded with one of the user's own, but its spelling is read."""
    options = NsightOptions(options={"t": "nvtx", key: "bogus"}, gate=gate)
    assert (f"options.{key}", "Illegal --capture-range argument: bogus.") == refusal(
        WITHOUT_GPU, found(), options
    )


@pytest.mark.nsys
@pytest.mark.parametrize("key", ["delay", "y"])
def test_options_that_wait_are_not_refused(key: str) -> None:
    """A program that ends at once would never be recorded with them."""
    lifetime = attrs.evolve(WITHOUT_GPU, windows=(Window(1, None, None),))
    assert refusal(lifetime, found(), NsightOptions(options={"t": "nvtx", key: 3600})) is None


@pytest.mark.nsys
def test_the_session_gate_is_tried_by_its_own_commands(tmp_path: Path) -> None:
    """If `nsys start` fails, the preflight refuses in its words, also with hidden output."""
    nsys = tmp_path / "nsys"
    nsys.write_text(f"""#!/bin/sh\n[ "$1 $2" = "start --help" ] || [ "$1" != start ] || {{
    echo "not today"; exit 1; }}
exec {found().path} "$@"\n""")
    nsys.chmod(0o755)
    tool = find.find(str(nsys))
    assert tool is not None
    options = {"t": "nvtx", "show-output": "false"}
    assert ("", "nsys start failed: not today") == refusal(
        WITHOUT_GPU, tool, NsightOptions(options=options, gate="session")
    )
    assert refusal(WITHOUT_GPU, tool, NsightOptions(options=options)) is None
    assert refusal(WITHOUT_GPU, found(), NsightOptions(options=options, gate="session")) is None


@pytest.mark.parametrize(
    ("options", "named"), [({"t": "nvtx"}, True), ({"t": "nvtx", "sample": "none"}, False)]
)
def test_an_nsys_that_hangs(
    options: dict[str, str], named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known to hang it is named, if it is on; and no other worker waits for it again."""
    nsys, starts = tmp_path / "nsys", tmp_path / "starts"
    nsys.write_text(
        f'#!/bin/sh\nfor program; do :; done\n[ "$program" != true ] || {{ echo >>{starts}; '
        "exec sleep 600; }\n"
    )
    nsys.chmod(0o755)
    monkeypatch.setattr("gpuprof._shim.tool.IDLE", 0.5)
    with_gpu = attrs.evolve(WITHOUT_GPU, has_gpu=True)
    key, said = refusal(with_gpu, Tool(str(nsys), None), NsightOptions(options=options)) or (
        "",
        "not refused",
    )
    why = (
        "; sample=process-tree or cpuctxsw=process-tree can hang it: set options.sample=none and "
        "options.cpuctxsw=none"
    )
    assert "" == key
    assert trial.HANGS + (why if named else "") == said
    assert ("", trial.HANGS) == refusal(WITHOUT_GPU, Tool(str(nsys), None), NsightOptions())
    assert "\n" == starts.read_text()


def test_an_nsys_that_does_not_say_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for once, and then taken for none."""
    nsys, starts = tmp_path / "nsys", tmp_path / "starts"
    nsys.write_text(f"#!/bin/sh\necho >>{starts}; exec sleep 600\n")
    nsys.chmod(0o755)
    monkeypatch.setattr("gpuprof._shim.tool.IDLE", 0.5)
    assert [None, None] == [find.find(str(nsys)) for _ in range(2)]
    assert f"{nsys} --version hangs" in find.missing(str(nsys))
    assert "\n" == starts.read_text()


def test_an_nsys_that_works_for_long_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow machine is no fault: only doing nothing is."""
    nsys = tmp_path / "nsys"
    nsys.write_text(
        "#!/bin/sh\n[ $1 = --version ] || exit\n"
        'while [ "$((turns += 1))" -lt 1500000 ]; do :; done; echo 1.2\n'
    )
    nsys.chmod(0o755)
    monkeypatch.setattr("gpuprof._shim.tool.IDLE", 0.5)
    tool = find.find(str(nsys))
    assert tool is not None
    assert "1.2" == tool.version


def found() -> Tool:
    """The nsys of this machine."""
    tool = find.find("nsys")
    assert tool is not None
    return tool


@pytest.mark.parametrize("words", ["Dynamic exception type: SystemException", "Connection refused"])
@pytest.mark.parametrize("crashes", [1, 3])
def test_a_crash_of_nsys_is_retried(crashes: int, words: str, tmp_path: Path) -> None:
    """On a busy machine nsys's agent can start too late: that says nothing about the options."""
    asked = tmp_path / "asked"
    program = f"echo >> {asked}; [ $(wc -l < {asked}) -gt {crashes} ] && echo fine || echo {words}"
    expected = "fine" if crashes == 1 else words
    assert expected == trial.output_of(["sh", "-c", program], str(tmp_path)).strip()
    assert min(crashes + 1, 3) == len(asked.read_text().splitlines())
