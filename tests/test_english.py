"""Phrases that make English sound translated stay as rare in our docs as in other projects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GENERATED = ("api.md", "cli.md", "keys.md", "how-often-it-is-right.md")
PAGES = [
    *(path for path in (ROOT / "docs").rglob("*.md") if path.name not in GENERATED),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]
# Most occurrences in 1,000 words. The docs of structlog, pluggy, hatch, pyinstrument and viztracer
# have 0, 0, 0.03, 0.08 and 0.23.
PHRASES = {
    r"(?<!heard )\bof (nsys|Ray|gpuprof|torch)\b(?!'s)(?! [A-Z\d])": 0.1,
    r"\bof (its|their) own\b": 0.05,
    r"\b(has|have) none\b|\b(is|are) ones?\b(?! \w)": 0.15,
    r"\b(stands?|lies?)\b(?!-in| in\b| out\b)": 0.1,
    r"\b[Ww]hat (?!it is|a step is|time is)\w+( \w+){0,4} (is|are)\b": 0.25,
}


def prose(path: Path) -> str:
    """A page without its code."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_is_rare(phrase: str) -> None:
    """Over all pages that people write."""
    texts = {path: prose(path) for path in PAGES}
    words = sum(len(text.split()) for text in texts.values())
    places = [
        f"{path.relative_to(ROOT)}: …{text[max(match.start() - 30, 0) : match.end() + 20]!r}…"
        for path, text in texts.items()
        for match in re.finditer(phrase, text)
    ]
    assert len(places) <= PHRASES[phrase] * words / 1000, "\n".join(places)
