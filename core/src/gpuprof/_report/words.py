"""Numbers and names in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def percentage(share: float) -> str:
    """A share in per cent, as text.

    >>> percentage(0.256), percentage(-0.001)
    ('26 %', '0 %')
    """
    return f"{round(100 * share, 0) + 0.0:.0f} %"  # -0.0 + 0.0 is 0.0


def duration(seconds: float) -> str:
    """A duration, as text.

    >>> duration(3.14), duration(0.0123), duration(0.000045), duration(0.9997)
    ('3.14 s', '12.3 ms', '45 µs', '1.00 s')
    """
    if seconds >= 0.9995:
        return f"{seconds:.2f} s"
    if seconds >= 0.001:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds * 1e6:.0f} µs"


def ordinal(number: int) -> str:
    """An ordinal number, as text.

    >>> [ordinal(number) for number in (2, 3, 10, 11, 21)]
    ['2nd', '3rd', '10th', '11th', '21st']
    """
    teen = number // 10 % 10 == 1
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def all_of(names: Sequence[str]) -> str:
    """An English list of names.

    >>> all_of(["A"]), all_of(["A", "B", "C"])
    ('A', 'A, B and C')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
