"""One interface to all releases of the Python package nvtx."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import attrs


@attrs.frozen
class Functions:
    """The functions that open and close ranges in one domain.

    Args:
        describe: returns the argument of `push` and `start`, from name, colour, category, payload.
        start: returns the argument of `end`; any thread may end the range.
    """

    describe: Callable[[str, int, str, int | None], Any]
    push: Callable[[Any], object]
    pop: Callable[[], object]
    start: Callable[[Any], Any]
    end: Callable[[Any], object]


@functools.cache
def functions(domain: str) -> Functions:
    """The functions of a domain, for the installed release of nvtx.

    Older releases have only module-level functions, which look up the domain in each call; newer
    ones have `nvtx.Domain`. From 0.2.12 on, nvtx asks the tool whether the domain is enabled, and
    otherwise returns a dummy domain. nsys up to 2023.4 does not answer, so its reports would have
    no ranges. Under a tool, this function therefore replaces the dummy with a real domain.
    """
    import nvtx

    if not hasattr(nvtx, "Domain"):
        return _module_functions(nvtx, domain)
    domain_object = nvtx.get_domain(domain)
    if not isinstance(domain_object, nvtx.Domain) and "NVTX_INJECTION64_PATH" in os.environ:
        from nvtx._lib.lib import DomainHandle

        domain_object = object.__new__(nvtx.Domain)
        domain_object.handle = DomainHandle(domain)
        domain_object.__init__(domain)
    return Functions(
        lambda name, color, category, payload: domain_object.get_event_attributes(
            name, color=color, category=category, payload=payload
        ),
        domain_object.push_range,
        domain_object.pop_range,
        domain_object.start_range,
        domain_object.end_range,
    )


def _module_functions(nvtx: Any, domain: str) -> Functions:
    return Functions(
        lambda name, color, category, payload: (name, color, domain, category, payload),
        lambda description: nvtx.push_range(*description),
        lambda: nvtx.pop_range(domain),
        lambda description: nvtx.start_range(*description),
        nvtx.end_range,
    )
