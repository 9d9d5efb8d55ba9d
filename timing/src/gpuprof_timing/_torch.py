"""Whether torch is tracing the current code, which must then contain no scope.

Never imports torch.
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
        function = getattr(compiler, "is_dynamo_compiling", None)
        if function is not None:
            is_compiling = function
            return bool(function())
    return False


is_compiling: Callable[[], bool] = _look_for_torch
"""True while `torch.compile` traces.

Once torch is imported, its own function replaces this; tracing folds that to a constant.
"""
