"""Stands for the native library that `rocprof-sys-sample` preloads: it is in the process before anything else."""

import os
import sys

from rocprofsys import _collector

os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].split(os.pathsep, 2)[2]  # what Python was told to load us with
_collector.initialize(getattr(sys, "orig_argv", sys.argv))
