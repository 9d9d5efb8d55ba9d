"""`make test` has none of what these jobs import: `make test-jobs` runs them."""

from importlib.util import find_spec

collect_ignore = ["programs", *([] if find_spec("trl") else ["test_jobs.py"])]
