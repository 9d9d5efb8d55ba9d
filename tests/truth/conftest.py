"""What `make truth-real` runs is no module of the suite."""

collect_ignore = ["programs"]
