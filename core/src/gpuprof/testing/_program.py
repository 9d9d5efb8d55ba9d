"""The kit's worker, run as a script: reports its interpreter, then opens ranges in five steps."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import threading

THREADS, ROUNDS, TASKS = 4, 5, 10


def tell(path: str) -> None:
    """Write down the interpreter, the arguments, the module's name and the process's state."""
    seen = {
        "executable": sys.executable,
        "flags": list(sys.flags),
        "argv": sys.argv,
        "name": __name__,
        "process": process(),
    }
    with open(path, "w") as file:
        json.dump(seen, file)


def process() -> dict[str, object]:
    """What this process has from its launcher, and no tool may change."""
    mask = os.umask(0)
    os.umask(mask)
    ignored = [n for n in range(1, 32) if signal.getsignal(n) == signal.SIG_IGN]
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {
        "umask": f"{mask:04o}",
        "ignored signals": ignored,
        "blocked signals": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
        "working directory": os.getcwd(),
        "stdin": os.readlink("/proc/self/fd/0"),
        "stdout": os.readlink("/proc/self/fd/1"),
        "stderr": os.readlink("/proc/self/fd/2"),
        "niceness": os.nice(0),
    }


def work(step: int) -> None:
    """One step, in threads and tasks."""
    import gpuprof

    with gpuprof.timing().add_time(f"kit/outer-{step}"):
        for _ in range(3):
            with gpuprof.annotate(f"kit/inner-{step}"):
                pass
        try:
            with gpuprof.annotate(f"kit/raises-{step}"):
                raise KeyError
        except KeyError:
            pass
        threads = [threading.Thread(target=work_in_thread, args=(step,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(work_in_tasks(step))


def work_in_thread(step: int) -> None:
    """Open ranges beside those of other threads."""
    import gpuprof

    for _ in range(ROUNDS):
        with gpuprof.annotate(f"kit/thread-{step}"):
            pass


async def work_in_tasks(step: int) -> None:
    """Open ranges in interleaved tasks."""
    import gpuprof

    async def one(number: int) -> None:
        with gpuprof.annotate(f"kit/task-{step}"):
            for _ in range(number % 3 + 1):
                await asyncio.sleep(0)

    await asyncio.gather(*(one(number) for number in range(TASKS)))


def expected_labels(step: int) -> dict[str, int]:
    """How often each range is opened in a step."""
    kinds = {"outer": 1, "inner": 3, "raises": 1, "thread": THREADS * ROUNDS, "task": TASKS}
    return {f"kit/{kind}-{step}": count for kind, count in kinds.items()}


def main(path: str, works: str) -> None:
    """Report, then work, exit or raise as `works` says."""
    tell(path)
    if works == "exit":
        sys.exit(7)
    if works == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if works == "raise":
        raise KeyError("the worker's own")
    if works == "work":
        import gpuprof

        for step in range(5):
            with gpuprof.step(step):
                work(step)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
