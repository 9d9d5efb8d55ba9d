"""What Sample Factory itself has of its `Timing`, used in each way it offers; written as JSON."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from sample_factory.utils.timing import Timing

timing = Timing("Theirs")
for _ in range(3):
    with timing.timeit("step"), timing.add_time("train"), timing.time_avg("sample", average=2):
        pass
try:
    with timing.add_time("failing"):
        raise KeyError("inside")
except KeyError as error:
    raised = str(error)
with timing.add_time("train"):
    pass
kept = timing.add_time("kept")
for _ in range(2):
    with kept:
        pass
done = {
    "raised": raised,
    "tree": re.sub(r"[0-9.]+", "", str(timing)),
    "flat": re.sub(r"[0-9.]+", "", timing.flat_str()),
    "kinds": {name: type(timing[name]).__name__ for name in ("step", "train", "sample")},
}
Path(sys.argv[1]).write_text(json.dumps(done))
