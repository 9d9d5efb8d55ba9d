"""Reads, settles and lists a run's files, brings them home, and compares them with the plan."""
