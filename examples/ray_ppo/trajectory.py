"""What the workers send each other about the past."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

Part: TypeAlias = dict[str, np.ndarray]
"""What one worker knows of a trajectory, or of one moment in it. In a trajectory the first
dimension of each array is time."""


def stack(moments: list[Part]) -> Part:
    """One trajectory from its moments."""
    return {key: np.stack([moment[key] for moment in moments]) for key in moments[0]}
