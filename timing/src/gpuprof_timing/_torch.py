"""Whether torch is tracing this very code, in which case a scope must not be there.

Torch is never imported from here.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def _look_for_torch() -> bool:
    global is_compiling
    if "torch" in sys.modules:
        # missing while torch itself is being imported
        compiler = getattr(sys.modules["torch"], "compiler", None)
        found = getattr(compiler, "is_dynamo_compiling", None)
        if found is not None:
            is_compiling = found
            return bool(found())
    return False


is_compiling: Callable[[], bool] = _look_for_torch
"""True while `torch.compile` traces. Replaced by torch's own function, which tracing folds to a
constant, once torch is there."""
