"""The stand-in is run, and not collected."""

collect_ignore = ["rocprof_stand_in"]
