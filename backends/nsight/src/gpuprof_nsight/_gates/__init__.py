"""The ways to have nsys record a window, in the worker."""
