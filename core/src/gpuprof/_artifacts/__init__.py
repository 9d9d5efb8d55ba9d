"""A run's files: reads, settles and lists them, brings them home, compares them with the plan."""
