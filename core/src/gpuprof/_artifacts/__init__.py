"""A run's files: read, settled, brought home, listed, and held against the plan."""
