"""The program that runs on the node in front of a worker, and code that it shares with the run.

It uses the standard library only.
"""

import os

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
"""The path of the program, which is run with ``python -S -E``."""
