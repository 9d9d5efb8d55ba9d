"""The kit's worker, run as a script: reports its interpreter, then opens ranges in five steps."""

from __future__ import annotations

import asyncio
import json
import sys
import threading

THREADS, ROUNDS, TASKS = 4, 5, 10


def tell(path: str) -> None:
    """Write down the interpreter, its flags, the arguments and the module's name."""
    seen = {
        "executable": sys.executable,
        "flags": list(sys.flags),
        "argv": sys.argv,
        "name": __name__,
    }
    with open(path, "w") as file:
        json.dump(seen, file)


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
    if works == "raise":
        raise KeyError("the worker's own")
    if works == "work":
        import gpuprof

        for step in range(5):
            with gpuprof.step(step):
                work(step)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
