"""Frameworks that make their own workers, profiled without a change of their source.

Each module here is one framework. Its `install`, called before the framework's modules are
imported, replaces a few of their functions at run time: where workers are made, where steps are
counted, and where the framework times its own code.
"""

NAMES = ("rlinf", "verl", "nemo-rl", "sample-factory")
"""The frameworks, as `gpuprof run --integrate` spells them."""

ON_RAY = ("rlinf", "verl", "nemo-rl")
"""Those whose workers are actors of Ray: their driver makes the run."""

VARIABLE = "GPUPROF_INTEGRATE"
"""Names the framework's package for `_start/sitecustomize.py`."""
