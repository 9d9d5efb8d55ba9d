"""The planted faults are run by `tests/testing/test_planted.py`, not collected."""

collect_ignore = ["planted"]
