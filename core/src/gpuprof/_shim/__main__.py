"""The shim as a program, run by path.

It runs before any environment is set up, so only the standard library can be imported by name.
"""

import sys

folder = sys.path.pop(0)  # nothing here may shadow the standard library

import os  # noqa: E402

sys.path.append(os.path.dirname(folder))  # last, and only while we import this package
from _shim.row import VARIABLE  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
from _shim.run import main  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

sys.path.pop()
sys.exit(main(os.environ[VARIABLE], sys.argv[1:]))
