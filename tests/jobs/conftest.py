"""`make test` has none of what these jobs import: `make test-jobs` runs them.

The frameworks' environment has what Transformers and Ray Train import: CI runs a job of each there.
"""

from importlib.util import find_spec

collect_ignore = [
    "programs",
    *([] if find_spec("transformers") else ["test_jobs.py"]),
    *([] if find_spec("prometheus_client") else ["test_ray_metrics.py"]),
]
