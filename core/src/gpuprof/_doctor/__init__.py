"""Can this machine profile? Tried for real."""
