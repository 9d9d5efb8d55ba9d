"""What `gpuprof run` costs a job that it records: everything on, against nothing.

One job under `gpuprof run`, a driver and two actors on Ray, or with ``--no-ray`` one process. It
switches parts of the recording off and on, in turns of several steps, in all of its processes. So
the same threads do the same step with and without each part, a second apart, and what differs
between two jobs, or from minute to minute, is left out. A turn without anything comes twice: what
these two differ is the noise.

The figures are processor time, which other programs change less than the clock. That of gpuprof's
own threads is theirs, in a last, long turn with everything. The stack samples are as rare as after
a job's first minutes.
Starts are fresh processes in turns.
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
STEPS = 4
"""Steps of a turn, each measured by itself, since a single one is often disturbed."""
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
DRIVER, ACTORS = "driver", "actors"
JOB, STACKS, OTHERS = "job", "gpuprof-stacks", "gpuprof's other threads"
CLOCK, PROCESSES = "clock", "processes"
NOTHING, ALL, NO_CALLS, NO_SAMPLES, AGAIN = (
    "nothing", "everything", "without Ray calls", "without stack samples", "nothing, again",
)  # fmt: skip
STATES = {
    NOTHING: "",
    ALL: "ray scopes samples",
    NO_CALLS: "scopes samples",
    NO_SAMPLES: "ray scopes",
    AGAIN: "",
}
"""The parts that are on."""
STARTS = {
    "python -c pass": "pass",
    "python -c 'import torch'": "import torch",
    "a Ray job of three actors": _ACTORS,
}


# In the job


def threads() -> tuple[int, dict[int, str]]:
    """This process, and whose each of its Python threads is: the job's, or which of gpuprof's."""

    def owner(name: str) -> str:
        is_ours = name.startswith("gpuprof-")
        return name if name == STACKS else OTHERS if is_ours else JOB

    return os.getpid(), {
        thread.native_id: owner(thread.name)
        for thread in threading.enumerate()
        if thread.native_id is not None
    }


def spent(processes: list[tuple[int, dict[int, str]]]) -> dict[str, float]:
    """Processor seconds so far of the Python threads of the driver and the actors, by whose.

    And those of the whole processes, with the threads that Ray and torch have in C++.
    """
    seconds: dict[str, float] = defaultdict(float)
    for number, (process, owners) in enumerate(processes):
        # the clock of another process's processor time: see clock_getcpuclockid(3)
        seconds[PROCESSES] += time.clock_gettime(~process << 3 | 2)
        for thread, owner in owners.items():
            with open(f"/proc/{process}/task/{thread}/schedstat") as file:
                nanoseconds = int(file.read().split()[0])
            seconds[f"{ACTORS if number else DRIVER} {owner}"] += nanoseconds / 1e9
    return seconds


class Switch:
    """Switches parts of the recording of this process off and on."""

    def __init__(self) -> None:
        from gpuprof._session import public, stacks

        session = public.session()
        assert session is not None
        assert session.ledger is not None
        sampler = session.ledger._sampler
        assert sampler is not None
        self.samples_are_on = threading.Event()
        sample, pause = sampler.sample, sampler.pause
        begun: list[float] = []

        def sample_in_turn() -> None:
            self.samples_are_on.wait()
            sample()

        def pause_as_later(spent: float, elapsed: float) -> float:
            begun[:] = begun or [spent, elapsed]
            return pause(spent - begun[0], elapsed - begun[1])

        sampler.sample, sampler.pause = sample_in_turn, pause_as_later  # type: ignore[method-assign]
        # the limit is that of the turns with samples
        sampler._share *= sum("samples" in parts for parts in STATES.values()) / len(STATES)
        stacks._ALLOWANCE = 0.0

    def __call__(self, parts: str) -> None:
        """Leave only these parts on."""
        from gpuprof._session.instruments import instrument as module

        for instrument in list(module._all):
            instrument.on = ("ray" if instrument.name == "ray" else "scopes") in parts
            for undo in instrument._undo:
                if isinstance(undo, functools.partial) and undo.func is module._put_back:
                    owner, attribute, replacement, original = undo.args
                    setattr(owner, attribute, replacement if instrument.on else original)
                else:  # Ray looks up its methods again
                    undo()
        if "samples" in parts:
            self.samples_are_on.set()
        else:
            self.samples_are_on.clear()


def parts_of_job(
    on_ray: bool,
) -> tuple[
    dict[str, Callable[[], object]], Callable[[str], object], Callable[[], dict[str, float]]
]:
    """What a job does, by name; what switches parts; and the processor seconds used so far."""
    import gpuprof
    import torch

    torch.set_num_threads(1)
    # with a card, a recorded process reads NVML, too
    device = "cuda" if torch.cuda.is_available() else "cpu"
    call, threads_of_actors, switch = actors() if on_ray else (lambda _: None, list, Switch())
    scope: Callable[[str], Any] = contextlib.nullcontext

    def switch_all(parts: str) -> None:
        nonlocal scope
        scope = gpuprof.timer if "scopes" in parts else contextlib.nullcontext
        switch(parts)

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
    }
    return done, switch_all, functools.partial(spent, processes)


def actors() -> tuple[Callable[[int], object], Callable[[], list[Any]], Callable[[str], object]]:
    """Two actors.

    Returns:
        What calls one of them, by a number; what asks both for their `threads`; and what switches
        parts in all processes.
    """
    import ray

    class Env:
        def __init__(self) -> None:
            self.switch = Switch()

        def sample(self) -> int:
            return 1

        def threads(self) -> tuple[int, dict[int, str]]:
            return threads()

        def leave_on(self, parts: str) -> None:
            self.switch(parts)

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=os.environ["RAY_DIRECTORY"],
    )
    actor = ray.remote(num_cpus=0)(Env)
    envs = [actor.remote() for _ in range(2)]
    switch_here = Switch()

    def call(number: int) -> None:
        ray.get(envs[number % 2].sample.remote())

    def threads_of_actors() -> list[Any]:
        return list(ray.get([env.threads.remote() for env in envs]))

    def switch(parts: str) -> None:
        ray.get([env.leave_on.remote(parts) for env in envs])
        switch_here(parts)

    return call, threads_of_actors, switch


def job(on_ray: bool) -> None:
    """Do what standard input asks for, and answer with the seconds that it took."""
    done, switch, used = parts_of_job(on_ray)
    for line in sys.stdin:
        name, parts, times, count = json.loads(line)
        part, answers = done[name], []
        switch(parts)
        part()  # what the switch has left in no cache
        for _ in range(times):
            before, began = used(), time.perf_counter()
            for _ in range(count):
                part()
            clock, after = time.perf_counter() - began, used()
            seconds = {CLOCK: clock} | {owner: after[owner] - before[owner] for owner in after}
            answers.append({owner: value / count for owner, value in seconds.items()})
        print("answer", json.dumps(answers), flush=True)


# Outside

Ask = Callable[[str, str, int, int], list[dict[str, float]]]


@contextlib.contextmanager
def started(directory: str, on_ray: bool) -> Iterator[Ask]:
    """A job that does a part in a state several times, each of them a number of times.

    It says for each what one took, by whom.
    """
    program = [sys.executable, os.path.abspath(__file__), "--job"]
    program += [] if on_ray else ["--no-ray"]
    process = subprocess.Popen(
        [*RUN, "--", *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=directory,
        env=environment(directory, "job"),
    )
    to, of = process.stdin, process.stdout
    assert to is not None
    assert of is not None

    def ask(part: str, state: str, times: int, count: int) -> list[dict[str, float]]:
        to.write(json.dumps([part, STATES[state], times, count]) + "\n")
        to.flush()
        for line in of:
            if line.startswith("answer "):
                answers = json.loads(line.removeprefix("answer "))
                return [defaultdict(float, answer) for answer in answers]
        raise RuntimeError(f"the job ended with exit code {process.wait()}")

    try:
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
    ask: Ask, part: str, states: list[str], times: int, count: int, rounds: int
) -> dict[str, list[dict[str, float]]]:
    """What a part took each time, by the state; each state is first, second, and so on."""
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in states}
    for turn in range(rounds + 1):
        first = turn % len(states)
        for state in states[first:] + states[:first]:
            answer = ask(part, state, times, count)
            if turn:  # the first round is thrown away
                answers[state] += answer
    return answers


def more(
    answers: dict[str, list[dict[str, float]]], state: str, *owners: str
) -> tuple[float, float, float]:
    """Microseconds by which a step takes more than one with nothing: median, and interval."""
    pairs = zip(answers[NOTHING], answers[state], strict=True)
    values = [1e6 * sum(b[owner] - a[owner] for owner in owners) for a, b in pairs]
    return statistics.median(values), *interval(values)


def threads_of_job(answers: dict[str, list[dict[str, float]]]) -> list[list[Any]]:
    """A row for each state: what a step of the job's threads takes more than one with nothing."""
    rows = []
    for state in answers:
        if state != NOTHING:
            median, low, high = more(answers, state, f"{DRIVER} {JOB}", f"{ACTORS} {JOB}")
            whole, *_ = more(answers, state, PROCESSES)
            rows.append([state, median, f"{low:.0f} to {high:.0f}", whole])
    return rows


def together(
    answers: dict[str, list[dict[str, float]]], last: list[dict[str, float]]
) -> list[list[Any]]:
    """A row for each kind of process, and all: what everything takes of a step, by the thread.

    Gpuprof's own threads run by the clock, so theirs is what they take in the time of a step.
    """
    rows: list[list[Any]] = []
    of_a_step = 1e6 * STEP / sum(answer[CLOCK] for answer in last)
    for kind in (DRIVER, ACTORS) if last[0][f"{ACTORS} {JOB}"] else (DRIVER,):
        own = [
            of_a_step * sum(answer[f"{kind} {thread}"] for answer in last)
            for thread in (STACKS, OTHERS)
        ]
        rows.append([kind, more(answers, ALL, f"{kind} {JOB}")[0], *own])
    rows.append(["together", *(sum(column) for column in list(zip(*rows, strict=True))[1:])])
    return [[*row, sum(row[1:]), sum(row[1:]) / (STEP * 1e4)] for row in rows]


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median of values, with 95 %: by the order of the values."""
    ordered, apart = sorted(values), 0.98 * len(values) ** 0.5
    middle = (len(values) - 1) / 2
    return ordered[max(0, round(middle - apart))], ordered[
        min(len(values) - 1, round(middle + apart))
    ]


def main() -> int:
    """Measure, print the tables, and say by the exit code whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="turns of each (default: 100)")
    parser.add_argument("--starts", type=int, default=20, help="starts of each (default: 20)")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--no-ray", action="store_true", help="a job of one process")
    arguments = parser.parse_args()
    on_ray = not arguments.no_ray and importlib.util.find_spec("ray") is not None
    if arguments.job:
        job(on_ray)
        return 0
    rows, share = [], 0.0
    with tempfile.TemporaryDirectory() as directory:
        with started(directory, on_ray) as ask:
            states = [state for state in STATES if on_ray or state != NO_CALLS]
            answers = samples(ask, "step", states, STEPS, 1, arguments.rounds)
            print(tabulate(threads_of_job(answers), OF_JOB, tablefmt="github", floatfmt=".0f"))
            last = ask("step", ALL, STEPS * arguments.rounds, 1)
            table = together(answers, last)
            share = table[-1][-1]
            formats = ("", ".0f", ".0f", ".0f", ".0f", ".2f")
            print("\n" + tabulate(table, OF_STEP, tablefmt="github", floatfmt=formats) + "\n")
            for title, part, count, unit in SUBJECTS:
                if part == "calls" and not on_ray:
                    continue
                answers = samples(ask, part, [NOTHING, ALL], 1, count, arguments.rounds)
                bare, marked = (
                    [
                        unit * (answer[f"{DRIVER} {JOB}"] + answer[f"{ACTORS} {JOB}"])
                        for answer in answers[state]
                    ]
                    for state in (NOTHING, ALL)
                )
                rows.append(row(title, bare, marked))
        print(tabulate(rows, HEADERS, tablefmt="github", floatfmt=".2f"))
        verdict = "met" if share <= GOAL else "missed"
        print(f"{verdict}: {share:.2f} % of a step of 100 ms in processor time, goal {GOAL} %\n")
        if arguments.starts:
            rows = starts(arguments.starts, directory, on_ray)
            heads = ["start to end, ms", *HEADERS[1:]]
            print(tabulate(rows, heads, tablefmt="github", floatfmt=".0f"))
    return int(share > GOAL)


SUBJECTS = [
    ("a training step of 2 layers, µs", "train 2", 40, 1e6),
    ("a training step of 50 layers, µs", "train 50", 10, 1e6),
    ("`queue.Queue`: put and get, µs", "queue", 200, 1e6),
    ("a Ray call, µs", "calls", 2, 1e6 / CALLS),
]
"""Processor time of the job's threads: a title, the part of the job, how often a sample does it,
how many of the unit are in a second."""
HEADERS = ["what", "alone min", "alone median", "recorded min", "recorded median", "added median"]
OF_JOB = [
    "the job's threads, µs more a step than with nothing",
    "median",
    "95 %",
    "whole processes",
]
OF_STEP = [
    "everything, µs of a step", "job's threads", "stacks' thread", "other threads", "together",
    "% of 100 ms",
]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
