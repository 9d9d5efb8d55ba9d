"""Other systems' settings, each beside what the system's own code does with it."""

from __future__ import annotations

from typing import Any

import pytest
from support.system_cases import ROOT, cases, differences, done, expected, revision

PAGES = {"rlinf": "rlinf.md", "nemo_rl": "nemo-rl.md"}
PREFIX = {"rlinf": "cluster.profiling", "nemo_rl": "NRL_NSYS_"}
EVERY = [
    pytest.param(name, case, id=f"{name}-{number}-{case['source'].rpartition('/')[2]}")
    for name in PAGES
    for number, case in enumerate(cases(name))
]


def page(name: str) -> str:
    return (ROOT / "docs" / "frameworks" / PAGES[name]).read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "case"), EVERY)
def test_gpuprof_does_what_the_system_does(name: str, case: dict[str, Any]) -> None:
    """Or what the case says, and then the page says so, too."""
    wanted, made = expected(case), done(case)
    if "error" in wanted:
        assert made.get("error", "").startswith(case.get("ours", {}).get("error", PREFIX[name]))
    else:
        assert wanted == made


@pytest.mark.parametrize(("name", "case"), EVERY)
def test_a_case_with_another_outcome_names_the_difference(name: str, case: dict[str, Any]) -> None:
    """Without a name, gpuprof has to agree."""
    assert bool(case["known"]) or "ours" not in case


@pytest.mark.parametrize(
    ("name", "difference"),
    [(name, each) for name in PAGES for each in differences(name)],
)
def test_a_difference_is_on_the_page(name: str, difference: str) -> None:
    """With the sentence that the cases name, and some case has it."""
    assert differences(name)[difference]["page"] in page(name)
    assert any(difference in case.get("difference", ()) for case in cases(name))


@pytest.mark.parametrize("name", PAGES)
def test_the_page_names_the_revision(name: str) -> None:
    """The one whose code was run for the cases."""
    assert revision(name)[:12] in page(name)


@pytest.mark.parametrize("name", PAGES)
def test_there_are_many_cases(name: str) -> None:
    """From examples, documentation and unit tests; a file that is cut short is noticed."""
    assert len(cases(name)) >= 60
