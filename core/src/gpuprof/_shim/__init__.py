"""What runs on the node in front of a worker, and what a run's processes share with it.

Standard library only.

The standard library only.
"""

import os

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
"""The program: run by path with ``python -S -E``."""
