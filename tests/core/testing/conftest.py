"""The planted faults are run by `test_planted`, not collected."""

collect_ignore = ["planted"]
