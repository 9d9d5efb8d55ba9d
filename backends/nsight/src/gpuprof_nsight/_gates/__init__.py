"""The gates: each makes nsys record a window, from inside the worker."""
