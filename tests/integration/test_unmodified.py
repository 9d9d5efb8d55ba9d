"""Programs that have never heard of gpuprof, under `gpuprof run`."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts import ledger
from support.launched import GPUPROF, NSIGHT, reports, run
from support.report_reader import labels

pytestmark = pytest.mark.torch

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
LOOP = """
import time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

dist.init_process_group("gloo")
rank = dist.get_rank()


class Batches(Dataset):
    def __len__(self):
        return 30

    def __getitem__(self, number):
        time.sleep(0.1 if rank == 1 else 0.005)
        return torch.full((64,), float(number))


torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-6)
for batch in DataLoader(Batches()):
    optimizer.zero_grad()
    parallel(batch).sum().backward()
    optimizer.step()
if rank == 0:
    print("weights", float(model.weight.sum()))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where two ranks of a DDP job ran, of which rank 1 has a slow loader; what rank 0 printed."""
    directory = tmp_path_factory.mktemp("ddp")
    (directory / "train.py").write_text(LOOP)
    done = run(directory, [*GPUPROF, "--", *TORCHRUN, "train.py"])
    assert 0 == done.returncode, done.stderr
    return directory, done.stdout


def explained(directory: Path) -> dict[str, Any]:
    """What `gpuprof explain` says of the last run below a directory."""
    done = run(directory, [sys.executable, "-m", "gpuprof", "explain", "--json"])
    assert 0 == done.returncode, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_slow_loader_is_named(ddp: tuple[Path, str]) -> None:
    """And not the rank that waits for it in backward, where nothing recorded a collective."""
    answer = explained(ddp[0])
    causes = [(finding["worker"], finding["scope"]) for finding in answer["findings"]]
    assert ("Worker-1", "DataLoader.next") in causes[:1], answer
    # on a busy machine, the other rank has a part of the path, and the group is named
    assert answer["bounds"].partition(" ")[0] in ("Worker-1", "Worker")
    assert {"group": "Worker", "scope": "backward"} in answer["recognised"]


def test_steps_are_those_of_the_optimizer(ddp: tuple[Path, str]) -> None:
    """All but the first, and nothing after the last."""
    steps = explained(ddp[0])["steps"]
    assert (29, []) == (steps["all"], steps["incomplete"])
    assert steps["of_optimizer"]


def test_the_results_are_the_same(ddp: tuple[Path, str]) -> None:
    """To the last bit."""
    directory, printed = ddp
    done = run(directory, [*TORCHRUN, "train.py"])
    assert done.stdout == printed


STARTER = """
import os, runpy, socket, sys
import torch.multiprocessing

def train(rank, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    runpy.run_path("train.py")

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    torch.multiprocessing.start_processes(train, [port], 2, start_method=sys.argv[1])
"""


OTHERS = [pytest.param(method, marks=pytest.mark.exhaustive) for method in ("fork", "forkserver")]


@pytest.mark.parametrize("method", ["spawn", *OTHERS])
def test_ranks_that_a_program_starts_itself_are_recorded(method: str, tmp_path: Path) -> None:
    """As the group named after their function; the program that waits for them is in no row."""
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "ranks.py").write_text(STARTER)
    done = run(tmp_path, [*GPUPROF, "--", sys.executable, "ranks.py", method])
    assert 0 == done.returncode, done.stderr
    answer = explained(tmp_path)
    assert [("train", 2)] == [(group["group"], group["workers"]) for group in answer["groups"]]
    cause = answer["findings"][0]
    assert ("train-1", "DataLoader.next", "") == (cause["worker"], cause["scope"], cause["config"])


def test_a_program_without_torch_has_its_tree(tmp_path: Path) -> None:
    """Its interpreter starts the session; the program itself imports nothing of gpuprof."""
    program = "import queue, sys; q = queue.Queue(); q.put(1); q.get(); print(len(sys.argv))"
    done = run(tmp_path, [*GPUPROF, "--", sys.executable, "-c", program])
    assert (0, "1\n") == (done.returncode, done.stdout), done.stderr
    assert "queue.get" in done.stderr


def test_an_isolated_interpreter_has_nothing_of_ours(tmp_path: Path) -> None:
    """It reads no PYTHONPATH, and was asked for by the job."""
    program = "import sys; print(any(name.startswith('gpuprof') for name in sys.modules))"
    done = run(tmp_path, [*GPUPROF, "--", sys.executable, "-I", "-c", program])
    assert (0, "False\n") == (done.returncode, done.stdout), done.stderr


SINGLE = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.nsys
def test_windows_open_at_its_steps(tmp_path: Path) -> None:
    """Those of the optimizer, with the ranges of its scopes."""
    (tmp_path / "train.py").write_text(SINGLE)
    command = [*GPUPROF, *NSIGHT, "--set", "steps=[3,5]", "--", sys.executable, "train.py"]
    done = run(tmp_path, command)
    assert 0 == done.returncode, done.stderr
    made = reports(tmp_path)
    assert {"Program-0.step-3", "Program-0.step-5"} == set(made)
    assert {"forward", "backward", "optimizer"} <= set(labels(made["Program-0.step-3"]))


OWN = """
def train(number):
    return number
def main():
    for number in range(12):
        train(number)
main()
"""


def test_calls_of_the_scripts_own_function_are_steps(tmp_path: Path) -> None:
    """By the script's name as by that of the module that it is."""
    (tmp_path / "job.py").write_text(OWN)
    for module in ("job", "__main__"):
        command = [*GPUPROF, "--set", f"step_at={module}:train", "--", sys.executable, "job.py"]
        done = run(tmp_path, command)
        assert 0 == done.returncode, done.stderr
        assert 12 == explained(tmp_path)["steps"]["all"]


PROCESSES = """
import multiprocessing, os
def train(number):
    return number
def rank(how):
    for number in range(5):
        train(number)
class Forked(multiprocessing.get_context("fork").Process):
    def run(self):
        rank("fork")
class Spawned(multiprocessing.get_context("spawn").Process):
    def run(self):
        rank("spawn")
class Served(multiprocessing.get_context("forkserver").Process):
    def run(self):
        rank("forkserver")
if __name__ == "__main__":
    processes = [Forked(), Spawned(), Served()]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if not os.fork():
        rank("by itself")
    else:
        os.wait()
"""


def test_calls_in_processes_that_the_program_starts_are_steps_there(tmp_path: Path) -> None:
    """However it starts them; nobody says that there were none."""
    (tmp_path / "job.py").write_text(PROCESSES)
    done = run(tmp_path, [*GPUPROF, "--set", "step_at=job:train", "--", sys.executable, "job.py"])
    assert 0 == done.returncode, done.stderr
    assert "has marked no step" not in done.stderr
    found = [ledger.read(path) for path in tmp_path.glob("gpuprof-output/*/*/*.ledger")]
    assert {"Forked": 5, "Served": 5, "Spawned": 5, "Program": 0, "child": 5} == {
        "child" if each.header["role"] == "child" else each.header["group"]: len(each.steps())
        for each in found
    }


def test_where_nobody_calls_it_all_who_did_not_are_named(tmp_path: Path) -> None:
    """Others may have called it, which are not recorded."""
    (tmp_path / "job.py").write_text(OWN.replace("    for", "    return\n    for"))
    run(tmp_path, [*GPUPROF, "--set", "step_at=job:train", "--", sys.executable, "job.py"])
    done = run(tmp_path, [sys.executable, "-m", "gpuprof", "explain"])
    assert "step_at: job:train was not called in Program-0; without an edit" in done.stderr


VECTORISED = """
import multiprocessing, time
import torch

def environment(pipe, number):
    while pipe.recv():
        time.sleep(0.003)
        if number == 2:
            render()
        pipe.send(0.0)

def render():
    time.sleep(0.007)

if __name__ == "__main__":
    pipes = []
    for number in range(3):
        ours, theirs = multiprocessing.Pipe()
        multiprocessing.Process(target=environment, args=(theirs, number), daemon=True).start()
        pipes.append(ours)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(80):
        for _ in range(8):
            for pipe in pipes:
                pipe.send(True)
            for pipe in pipes:
                pipe.recv()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
"""


GYMNASIUM = """
import time
import gymnasium, numpy, torch

class Maze(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (4,))
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, number):
        self.number = number
    def reset(self, **_):
        return numpy.zeros(4, numpy.float32), {}
    def step(self, action):
        time.sleep(0.003)
        if self.number == 2:
            self.render()
        return numpy.zeros(4, numpy.float32), 0.0, False, False, {}
    def render(self):
        time.sleep(0.007)

if __name__ == "__main__":
    mazes = gymnasium.vector.AsyncVectorEnv([lambda n=n: Maze(n) for n in range(3)])
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    observations, _ = mazes.reset()
    for _ in range(80):
        for _ in range(8):
            values = model(torch.as_tensor(observations))
            observations, *_ = mazes.step(values.argmax(1).numpy())
        values.sum().backward()
        optimizer.step()
    mazes.close()
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(VECTORISED, id="the job's own, never closed"),
        pytest.param(GYMNASIUM, id="gymnasium's", marks=pytest.mark.exhaustive),
    ],
)
def test_the_slow_one_of_vectorised_environments_is_found_with_its_line(
    program: str, tmp_path: Path
) -> None:
    """Whoever receives from a pipe waits for the process that sends; it saves half or more.

    On a busy machine, which slows the others as well, less, and it may only be hinted at.
    """
    if program == GYMNASIUM and importlib.util.find_spec("gymnasium") is None:
        pytest.skip("gymnasium is not installed")
    (tmp_path / "train.py").write_text(program)
    # also a busy machine takes enough samples of as many
    done = run(tmp_path, [*GPUPROF, "--set", "sampling=100", "--", sys.executable, "train.py"])
    assert 0 == done.returncode, done.stderr
    answer = explained(tmp_path)
    assert [] == answer["steps"]["incomplete"]  # its children are killed at its end
    cause = answer["findings"][0]
    assert ("rank", "environment-2") == (cause["cause"], cause["worker"])
    assert "render" in cause["line"]["name"]
    assert 0.15 < cause["saves"] < 0.8
    parent = next(group for group in answer["groups"] if group["group"] == "Program")
    assert "pipe.recv" == parent["scope"]


LOADING = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset

def decode(number):
    time.sleep(0.04)
    return torch.full((4,), float(number))

class Pictures(Dataset):
    def __len__(self):
        return 80
    def __getitem__(self, number):
        return decode(number)

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start = sys.argv[1]
    for picture in DataLoader(Pictures(), num_workers=2, multiprocessing_context=start):
        model(picture).sum().backward()
        optimizer.step()
"""
POOLED = """
import sys, time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import Pool
import torch

def score(answer):
    time.sleep(0.02)
    return float(answer)

def scores(pool):
    if sys.argv[1] == "map":
        return pool.map(score, range(4))
    return [future.result() for future in [pool.submit(score, n) for n in range(4)]]

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ProcessPoolExecutor(2) if sys.argv[1] == "submit" else Pool(2) as pool:
        for _ in range(40):
            model(torch.tensor([scores(pool)])).sum().backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("program", "argument", "scope", "function"),
    [
        (LOADING, "fork", "DataLoader.next", "decode"),
        pytest.param(
            *(LOADING, "spawn", "DataLoader.next", "decode"), marks=pytest.mark.exhaustive
        ),
        pytest.param(*(POOLED, "map", "pool.result", "score"), marks=pytest.mark.exhaustive),
        (POOLED, "submit", "pool.result", "score"),
    ],
)
def test_the_line_that_other_processes_run_is_said(
    program: str, argument: str, scope: str, function: str, tmp_path: Path
) -> None:
    """Of a DataLoader and of pools, whose processes call the job's functions."""
    (tmp_path / "train.py").write_text(program)
    command = [*GPUPROF, "--set", "sampling=100", "--", sys.executable, "train.py", argument]
    done = run(tmp_path, command)
    assert 0 == done.returncode, done.stderr
    answer = explained(tmp_path)
    assert ["Program"] == [group["group"] for group in answer["groups"]]
    cause = answer["findings"][0]
    assert ("data", "Program-0", scope) == (cause["cause"], cause["worker"], cause["scope"])
    assert 0.5 < cause["saves"] < 1.0
    line = cause["line"]
    assert ("helpers", function) == (line["kind"], line["name"])
    assert line["file"].endswith("train.py")
    assert 0.5 < 1 - line["waits"]
    assert f"see {function}, which its {line['scope']} runs at train.py:" in answer["helps"]


PREFETCHING = """
import queue, sys, threading, time
fetching, training = map(float, sys.argv[1:])
batches = queue.Queue(2)
def fetch():
    for number in range(24):
        time.sleep(fetching)
        batches.put(number)
def train():
    batches.get()
    time.sleep(training)
threading.Thread(target=fetch).start()
for _ in range(20):
    train()
for _ in range(4):
    batches.get()
"""


@pytest.mark.parametrize(
    ("seconds", "scope"), [(("0", "0.02"), ""), (("0.02", "0"), "fetch (thread)")]
)
def test_a_thread_that_fetches_ahead_bounds_only_steps_that_wait_for_it(
    tmp_path: Path, seconds: tuple[str, str], scope: str
) -> None:
    """Where it waits for room in the queue, the main thread does."""
    (tmp_path / "job.py").write_text(PREFETCHING)
    command = [*GPUPROF, "--set", "step_at=job:train", "--", sys.executable, "job.py", *seconds]
    done = run(tmp_path, command)
    assert 0 == done.returncode, done.stderr
    assert scope in explained(tmp_path)["bounds"]
    assert "queue.put" not in explained(tmp_path)["bounds"]


def test_a_step_that_the_script_does_not_define_stops_before_it_starts(tmp_path: Path) -> None:
    """It would slow the whole program, and find nothing."""
    (tmp_path / "job.py").write_text(OWN)
    done = run(tmp_path, [*GPUPROF, "--set", "step_at=job:fit", "--", sys.executable, "job.py"])
    assert (2, "gpuprof: step_at: job:fit: job.py defines no fit\n") == (
        done.returncode,
        done.stderr,
    )


def test_without_a_step_what_needs_no_edit_comes_first(tmp_path: Path) -> None:
    """`gpuprof explain` names the option before the code."""
    run(tmp_path, [*GPUPROF, "--", sys.executable, "-c", "import queue; queue.Queue().put(1)"])
    done = run(tmp_path, [sys.executable, "-m", "gpuprof", "explain"])
    assert "no step is found; without an edit, name what makes a step: gpuprof run" in done.stderr


BY_HAND = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
tensors = [torch.zeros(8) for _ in range(5)]
for step in range(20):
    time.sleep(0.08 if dist.get_rank() == 1 else 0.02)
    for tensor in tensors:
        dist.all_reduce(tensor)
    dist.reduce_scatter_tensor(torch.zeros(4), torch.zeros(8))  # calls another one
dist.destroy_process_group()
"""


def test_a_loop_without_an_optimizer_has_the_steps_of_its_collectives(tmp_path: Path) -> None:
    """And the rank that comes late to them is named."""
    (tmp_path / "job.py").write_text(BY_HAND)
    done = run(tmp_path, [*GPUPROF, "--", *TORCHRUN, "job.py"])
    assert 0 == done.returncode, done.stderr
    answer = explained(tmp_path)
    assert "the loop at job.py:5" == answer["steps"]["round"]
    assert 18 == answer["steps"]["all"]  # the first one has no known beginning, nor the last an end
    assert ["Worker-1"] == answer["findings"][0]["workers"]


OFF = """
import concurrent.futures, queue, sys, threading
replaced = [
    function.__qualname__
    for function in (queue.Queue.put, queue.Queue.get, threading.Thread.join)
    if hasattr(function, "__gpuprof_marks__")
]
top = {name.partition(".")[0] for name in sys.modules}
ours = {name for name in top if name.startswith("gpuprof")}
print(replaced, sorted(top & {"torch", "ray", "numpy", "yaml", "click"}), sorted(ours))
"""


@pytest.mark.parametrize(
    ("words", "variable", "ours"),
    [
        (["--set", "enabled=false"], "true", []),
        ([], "false", []),
        (["--set", "instruments=[]"], "true", ["gpuprof", "gpuprof_timing"]),
    ],
    ids=["enabled: false", "GPUPROF_ENABLED=false", "instruments: []"],
)
def test_off_is_off(tmp_path: Path, words: list[str], variable: str, ours: list[str]) -> None:
    """Nothing is replaced, and nothing imported that the job has not imported."""
    command = [*GPUPROF, *words, "--", sys.executable, "-c", OFF]
    done = run(tmp_path, command, GPUPROF_ENABLED=variable)
    assert f"[] [] {ours}\n" == done.stdout, done.stderr


def test_a_job_that_is_not_recorded_gets_no_settings(tmp_path: Path) -> None:
    """Nor do the programs that it starts."""
    program = "import os; print('GPUPROF_LAUNCHED' in os.environ)"
    command = [*GPUPROF, "--", sys.executable, "-c", program]
    done = run(tmp_path, command, GPUPROF_ENABLED="false")
    assert "False\n" == done.stdout, done.stderr


@pytest.mark.parametrize(
    "fault",
    ["gpuprof._session.session:Session", "gpuprof._session.instruments:begin"],
    ids=["session", "instruments"],
)
def test_a_program_whose_recording_cannot_begin_runs_as_alone(tmp_path: Path, fault: str) -> None:
    """The fault is said once."""
    module, _, name = fault.partition(":")
    (tmp_path / "sitecustomize.py").write_text(
        "import wrapt\n"
        "def fail(*_, **__): raise ZeroDivisionError('planted')\n"
        f"wrapt.register_post_import_hook(lambda m: setattr(m, {name!r}, fail), {module!r})\n"
    )
    command = [*GPUPROF, "--", sys.executable, "-c", "print(1)"]
    done = run(tmp_path, command, PYTHONPATH=str(tmp_path))
    assert (0, "1\n") == (done.returncode, done.stdout), done.stderr
    assert 1 == done.stderr.count("ZeroDivisionError: planted"), done.stderr


def test_a_module_of_the_programs_own_is_the_one_that_it_imports(tmp_path: Path) -> None:
    """Also if the standard library, or what gpuprof uses, has one of the name."""
    for name in ("calendar", "pluggy", "queue"):
        (tmp_path / f"{name}.py").write_text("MINE = __name__")
    (tmp_path / "platform").mkdir()
    (tmp_path / "platform" / "__init__.py").write_text("MINE = 'platform'")
    own = tmp_path / "site"
    own.mkdir()
    (own / "sitecustomize.py").write_text("FLAG = 5")
    (tmp_path / "job.py").write_text(
        "import calendar, platform, pluggy, queue, sitecustomize\n"
        "print(calendar.MINE, platform.MINE, queue.MINE, pluggy.MINE, sitecustomize.FLAG)"
    )
    job = str(tmp_path / "job.py")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = run(elsewhere, [*GPUPROF, "--", sys.executable, job], PYTHONPATH=str(own))
    expected = "calendar platform queue pluggy 5\n"
    assert (0, expected) == (done.returncode, done.stdout), done.stderr
