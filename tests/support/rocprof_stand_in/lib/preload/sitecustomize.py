"""Stands for the native library that `rocprof-sys-sample` preloads."""

import os
import sys

from rocprofsys import _collector

# what Python was told to load us with
os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].split(os.pathsep, 2)[2]
_collector.initialize(getattr(sys, "orig_argv", sys.argv))
