"""What `gpuprof run` costs a job that it records: everything on, against nothing.

Several jobs, one bare, one recorded, and others recorded in parts, each a driver and two actors on
a Ray cluster of its own; without Ray, each is one process. They do the same step in turns, one
while the others wait, and time it: by the clock, and by the processor time of all Python threads of
driver and actors, gpuprof's apart from the job's. Other programs change that less, so the goal is
held against it. Two jobs differ by a millisecond without a reason, so what a Ray call costs is also
measured within one, with its instrument on and off. Starts are fresh processes in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from tabulate import tabulate

CALLS = 50
"""Of actors in a step."""
STEP = 0.1
"""Seconds of the step that the goal speaks of."""
GOAL = 1.5
"""Per cent of it."""
RUN = [sys.executable, "-m", "gpuprof", "run"]
_ACTORS = """
import os, ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False,
         _temp_dir=os.environ["RAY_DIRECTORY"])
@ray.remote(num_cpus=0)
class Env:
    def sample(self):
        return 1
envs = [Env.remote() for _ in range(3)]
ray.get([env.sample.remote() for env in envs])
"""
DRIVER = "driver"
RAY = "without Ray calls"
JOBS: dict[str, list[str] | None] = {
    "alone": None,
    "recorded": [],
    "without stacks": ["sampling=0"],
    RAY: ["instruments=torch,queue"],
    "the ledger only": ["sampling=0", "instruments=[]"],
}
"""Settings of each job; ``None`` for the one that is not recorded."""
STARTS = {
    "python -c pass": "pass",
    "python -c 'import torch'": "import torch",
    "a Ray job of three actors": _ACTORS,
}


# In the jobs


def threads() -> tuple[int, dict[int, str]]:
    """This process, and whose each of its Python threads is: the job's, or which of gpuprof's."""
    return os.getpid(), {
        thread.native_id: thread.name if thread.name.startswith("gpuprof-") else "job"
        for thread in threading.enumerate()
        if thread.native_id is not None
    }


def spent(processes: list[tuple[int, dict[int, str]]]) -> dict[str, float]:
    """Processor seconds so far of all threads of some processes, by whose they are.

    Those of the first process, the driver's, also by themselves.
    """
    seconds: dict[str, float] = defaultdict(float)
    for process, owners in processes:
        for thread, owner in owners.items():
            with open(f"/proc/{process}/task/{thread}/schedstat") as file:
                spent_here = int(file.read().split()[0]) / 1e9
            seconds[owner] += spent_here
            seconds[DRIVER] += spent_here * (process == processes[0][0])
    return seconds


def parts(
    recorded: bool, on_ray: bool
) -> tuple[dict[str, Callable[[], object]], Callable[[], dict[str, float]]]:
    """What a job does, by name; and the processor seconds that it has used so far."""
    import torch

    scope: Callable[[str], Any] = contextlib.nullcontext
    if recorded:
        import gpuprof

        scope = gpuprof.timer
    torch.set_num_threads(1)
    # with a card, a recorded process reads NVML, too
    device = "cuda" if torch.cuda.is_available() else "cpu"

    call, threads_of_actors, switch = actors() if on_ray else (lambda _: None, list, bool)

    def training(layers: int) -> Callable[[], None]:
        model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(layers))).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        batch = torch.ones(4, 16, device=device)

        def train() -> None:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

        return train

    modules = [torch.nn.Linear(16, 16).to(device) for _ in range(50)]
    batch = torch.ones(4, 16, device=device)
    items: queue.Queue[int] = queue.Queue()
    train = training(2)

    def step() -> None:
        for number in range(CALLS):
            call(number)
        with torch.no_grad():  # each called by itself, as one module of fifty is one scope
            for module in modules:
                module(batch)
        for number in range(20):
            with scope(f"scope {number}"):
                pass
        train()
        time.sleep(STEP / 2)

    def pass_one() -> None:
        items.put(1)
        items.get()

    for part in (step, train):  # so that all threads have begun
        part()
    processes = [threads(), *threads_of_actors()]
    done: dict[str, Callable[[], object]] = {
        "step": step,
        "train 2": train,
        "train 50": training(50),
        "queue": pass_one,
        "calls": lambda: [call(number) for number in range(CALLS)],
        "on": lambda: switch(True),
        "off": lambda: switch(False),
    }
    return done, functools.partial(spent, processes)


def actors() -> tuple[Callable[[int], object], Callable[[], list[Any]], Callable[[bool], object]]:
    """Two actors.

    Returns:
        What calls one of them, by a number; what asks both for their `threads`; and what switches
        the instrument of Ray in all processes.
    """
    import ray

    class Env:
        def sample(self) -> int:
            return 1

        def threads(self) -> tuple[int, dict[int, str]]:
            return threads()

        def switch(self, on: bool) -> None:
            switch_here(on)

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=os.environ["RAY_DIRECTORY"],
    )
    actor = ray.remote(num_cpus=0)(Env)
    envs = [actor.remote() for _ in range(2)]

    def call(number: int) -> None:
        ray.get(envs[number % 2].sample.remote())

    def threads_of_actors() -> list[Any]:
        return list(ray.get([env.threads.remote() for env in envs]))

    def switch(on: bool) -> None:
        switch_here(True)
        ray.get([env.switch.remote(on) for env in envs])
        switch_here(on)

    return call, threads_of_actors, switch


def switch_here(on: bool) -> None:
    """Switch the instrument of Ray on or off in this process, if it is recorded."""
    from gpuprof._session.instruments import instrument

    for each in list(instrument._all):
        if each.name == "ray":
            each.on = on


def job(recorded: bool, on_ray: bool) -> None:
    """Do what standard input asks for, and answer with the seconds that it took."""
    done, used = parts(recorded, on_ray)
    for line in sys.stdin:
        name, count = json.loads(line)
        part = done[name]
        before, began = used(), time.perf_counter()
        for _ in range(count):
            part()
        clock, after = time.perf_counter() - began, used()
        seconds = {"clock": clock} | {name: after[name] - before[name] for name in after}
        print(
            "answer", json.dumps({name: each / count for name, each in seconds.items()}), flush=True
        )


# Outside


@contextlib.contextmanager
def started(
    directory: str, name: str, on_ray: bool
) -> Iterator[Callable[[str, int], dict[str, float]]]:
    """A job that does a part so many times, and says what it took, by the clock and by thread."""
    settings = JOBS[name]
    program = [sys.executable, os.path.abspath(__file__), "--job", str(int(settings is not None))]
    program += [] if on_ray else ["--no-ray"]
    if settings is not None:
        program = [*RUN, *(word for one in settings for word in ("--set", one)), "--", *program]
    process = subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=directory,
        env=environment(directory, f"job{[*JOBS].index(name)}"),
    )
    to, of = process.stdin, process.stdout
    assert to is not None
    assert of is not None

    def ask(part: str, count: int) -> dict[str, float]:
        to.write(json.dumps([part, count]) + "\n")
        to.flush()
        for line in of:
            if line.startswith("answer "):
                return defaultdict(float, json.loads(line.removeprefix("answer ")))
        raise RuntimeError(f"the job {name!r} ended with exit code {process.wait()}")

    try:
        ask("step", 1)  # clusters that start at the same time keep each other waiting
        yield ask
    finally:
        to.close()
        of.read()
        process.wait()


def environment(directory: str, name: str) -> dict[str, str]:
    """Variables of a job; Ray's directory has a short name, as its sockets have paths."""
    return {**os.environ, "RAY_DIRECTORY": os.path.join(directory, name)}


def starts(rounds: int, directory: str, on_ray: bool) -> list[list[Any]]:
    """A row for each program: milliseconds of its whole life, alone and recorded."""
    rows = []
    for number, (name, program) in enumerate(STARTS.items()):
        if "Ray" in name and not on_ray:
            continue
        command = [sys.executable, "-c", program]
        samples: dict[bool, list[float]] = {False: [], True: []}
        count = rounds if "Ray" not in name else max(1, rounds // 4)
        for turn in range(count + 1):
            for recorded in (False, True) if turn % 2 else (True, False):
                began = time.perf_counter()
                subprocess.run(
                    [*RUN, "--", *command] if recorded else command,
                    check=True,
                    capture_output=True,
                    cwd=directory,
                    env=environment(directory, f"s{number}{turn}{int(recorded)}"),
                )
                if turn:  # the first round is thrown away
                    samples[recorded].append((time.perf_counter() - began) * 1e3)
        rows.append(row(f"`{name}`" if "python" in name else name, samples[False], samples[True]))
    return rows


def row(name: str, alone: list[float], recorded: list[float]) -> list[Any]:
    """Minima, medians, and the median of what is added."""
    added = statistics.median(b - a for a, b in zip(alone, recorded, strict=True))
    least, median = min(alone), statistics.median(alone)
    return [name, least, median, min(recorded), statistics.median(recorded), added]


def samples(
    jobs: dict[str, Callable[[str, int], dict[str, float]]], part: str, count: int, rounds: int
) -> dict[str, list[dict[str, float]]]:
    """What a part took in each round, by the job; each job is first, second, and so on in turn."""
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    names = [*jobs]
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            answer = jobs[name](part, count)
            if turn:  # the first round is thrown away
                answers[name].append(answer)
    return answers


def calls(ask: Callable[[str, int], dict[str, float]], rounds: int) -> list[Any]:
    """A row: what a Ray call takes in a recorded job, with the instrument off and on in turns."""
    took: dict[str, list[float]] = {"off": [], "on": []}
    for turn in range(rounds):
        for state in ("off", "on") if turn % 2 else ("on", "off"):
            ask(state, 1)
            took[state].append(1e6 / CALLS * ask("calls", 1)["job"])
    return row("a Ray call, µs, processor; alone: unmarked", took["off"], took["on"])


def processor(answer: dict[str, float]) -> float:
    """Processor seconds of all threads of all processes."""
    return sum(seconds for owner, seconds in answer.items() if owner not in ("clock", DRIVER))


def parts_of_step(answers: dict[str, list[dict[str, float]]]) -> list[list[Any]]:
    """A row for each job: what its step takes more than that of the one alone, by the thread."""
    rows = []
    for name, of_job in answers.items():
        pairs = list(zip(answers["alone"], of_job, strict=True))
        more = [1e6 * (processor(b) - processor(a)) for a, b in pairs]
        of_threads = [1e6 * (b["job"] - a["job"]) for a, b in pairs]
        own = [
            statistics.mean(1e6 * answer[f"gpuprof-{thread}"] for answer in of_job)
            for thread in ("stacks", "control")
        ]
        of_driver = [1e6 * (b[DRIVER] - a[DRIVER]) for a, b in pairs]
        low, high = interval(more)
        row_of_job = [statistics.median(of_threads), *own, statistics.median(more)]
        together = f"{low:.0f} to {high:.0f}"
        rows.append([name, *row_of_job, together, statistics.median(of_driver)])
    return rows


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median of values, with 95 %: by the order of the values."""
    ordered, apart = sorted(values), 0.98 * len(values) ** 0.5
    middle = (len(values) - 1) / 2
    return ordered[max(0, round(middle - apart))], ordered[
        min(len(values) - 1, round(middle + apart))
    ]


def main() -> int:
    """Measure, print the tables, and say by the exit code whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="samples of each (default: 300)")
    parser.add_argument("--starts", type=int, default=20, help="starts of each (default: 20)")
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--no-ray", action="store_true", help="jobs of one process")
    arguments = parser.parse_args()
    on_ray = not arguments.no_ray and importlib.util.find_spec("ray") is not None
    if arguments.job is not None:
        job(bool(arguments.job), on_ray)
        return 0
    rows, share = [], 0.0
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        jobs = {
            name: stack.enter_context(started(directory, name, on_ray))
            for name in JOBS
            if on_ray or name != RAY
        }
        for title, part, count, unit in SUBJECTS:
            asked = jobs if part == "step" else {name: jobs[name] for name in ("alone", "recorded")}
            answers = samples(asked, part, count, arguments.rounds)
            for said, of in (("", lambda answer: answer["clock"]), (", processor", processor)):
                bare, marked = (
                    [unit * of(answer) for answer in answers[name]]
                    for name in ("alone", "recorded")
                )
                rows.append(row(title + said, bare, marked))
            if part == "step":
                share = rows[-1][-1] / (STEP * 1e3) * 100
                print(tabulate(parts_of_step(answers), PARTS, tablefmt="github", floatfmt=".0f"))
                print()
        if on_ray:
            rows.append(calls(jobs["recorded"], arguments.rounds))
        print(tabulate(rows, HEADERS, tablefmt="github", floatfmt=".2f"))
        verdict = "met" if share <= GOAL else "missed"
        print(f"{verdict}: {share:.2f} % of a step of 100 ms in processor time, goal {GOAL} %\n")
        if arguments.starts:
            rows = starts(arguments.starts, directory, on_ray)
            heads = ["start to end, ms", *HEADERS[1:]]
            print(tabulate(rows, heads, tablefmt="github", floatfmt=".0f"))
    return int(share > GOAL)


SUBJECTS = [
    ("a step of 100 ms, ms", "step", 1, 1e3),
    ("a training step of 2 layers, µs", "train 2", 40, 1e6),
    ("a training step of 50 layers, µs", "train 50", 10, 1e6),
    ("`queue.Queue`: put and get, µs", "queue", 200, 1e6),
]
"""What is measured: a title, the part of the job, how often a sample does it, how many of the unit
are in a second."""
HEADERS = ["what", "alone min", "alone median", "recorded min", "recorded median", "added median"]
PARTS = [
    "µs more a step", "the job's threads", "stacks' thread", "control thread", "together", "95 %",
    "of it in the driver",
]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
