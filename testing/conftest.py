"""The planted faults are run by `planted/run.py`, not collected."""

collect_ignore = ["planted"]
