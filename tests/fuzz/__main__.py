"""Run the fuzzers: ``python tests/fuzz --seed N --count N [NAME...]``.

A fuzzer is a module ``fuzz_*.py`` beside this file, with `NAME` and ``run(seed, count)``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def main() -> None:
    """Run the chosen fuzzers, or all of them."""
    modules = [importlib.import_module(path.stem) for path in sorted(HERE.glob("fuzz_*.py"))]
    names = [module.NAME for module in modules]
    parser = argparse.ArgumentParser(prog="python tests/fuzz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    given = parser.parse_args()
    if not {*given.names} <= {*names}:
        parser.error(f"expected names of {', '.join(names)}")
    for module in modules:
        if module.NAME in (given.names or names):
            module.run(given.seed, given.count)
            sys.stdout.write(
                f"{module.NAME}: {given.count} cases from seed {given.seed}: nothing found\n"
            )


main()
