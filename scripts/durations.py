"""Print the slowest files and tests of pytest's JUnit files, in seconds."""

from __future__ import annotations

import sys
from collections import Counter
from xml.etree import ElementTree

MOST = 15


def main(files: list[str]) -> None:
    """Print both tables, over all files; a test's time includes set-up and teardown."""
    by_file: Counter[tuple[str, str]] = Counter()
    by_test: Counter[tuple[str, str]] = Counter()
    for file in files:
        suite = ElementTree.parse(file).getroot()[0]
        name = suite.get("name", "")
        for case in suite.iter("testcase"):
            module, seconds = case.get("classname", ""), float(case.get("time", 0))
            by_file[name, module] += seconds
            by_test[name, f"{module}::{case.get('name')}"] += seconds
    for title, table in (("file", by_file), ("test", by_test)):
        print(f"{'seconds':>8}  {'suite':12}  {title}")
        for (name, what), seconds in table.most_common(MOST):
            print(f"{seconds:8.1f}  {name:12}  {what}")


if __name__ == "__main__":
    main(sys.argv[1:])
