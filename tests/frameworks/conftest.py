"""The jobs are programs: only their frameworks' environment can import them."""

from __future__ import annotations

collect_ignore = ["jobs"]
