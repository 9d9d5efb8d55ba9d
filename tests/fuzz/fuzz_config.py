"""Mutations of real configurations of all four systems: each is read, or is a `ConfigError`."""

from __future__ import annotations

import random
import re
import tempfile
import traceback
from pathlib import Path
from typing import Any

import yaml
from gpuprof._config.load import load
from gpuprof._plan.job import plan
from gpuprof.errors import GpuprofError
from support import rlinf_examples, verl_examples
from support.fuzzing import Hang, within

NAME = "config"
SECONDS = 20
"""For one case: a hundred times what a slow one takes."""

ROOT = Path(__file__).resolve().parents[2]
_PLACES = ("tests", "docs", "examples", "core/src/gpuprof/conf")
_SIGNS = {
    "verl": ("global_profiler:", "actor_rollout_ref:", "trainer:"),
    "rlinf": ("cluster:", "runner:"),
    "nemo-rl": ("NRL_NSYS",),
}
_HOSTILE = (
    "!!timestamp x", "!!bool x", "!!int ''", "!!binary é", "&a [*a]", "*a", "<<: *a", "? [1]",
    "9" * 5000, "0x" + "f" * 5000, "[" * 200, "{" * 200, "- " * 200, '"\\ud800"', '"\\0"', ".nan",
    ".inf", "-1", "1e999", "null", "true", "[]", "{}", "''", "${nowhere}", "${oc.env:X}", "%p",
    "{node}", "{", "}", "..", "/", "~", "|", ">", "\t", "é", "\u2028", "x" * 300, "2:4", "4:2",
    "all", "*", "[!a", "1_000", "0o7", "2020-99-99", "---", "...", "%YAML 9.9", "!!python/name:os",
)  # fmt: skip


def corpus() -> list[tuple[str, str]]:
    """System and text of every configuration in the repository."""
    texts = []
    for place in _PLACES:
        texts += [file.read_text() for file in sorted((ROOT / place).rglob("*.yaml"))]
        for page in sorted((ROOT / place).rglob("*.md")):
            texts += re.findall(r"```ya?ml[^\n]*\n(.*?)```", page.read_text(), re.S)
    found = []
    for text in texts:
        systems = [name for name, signs in _SIGNS.items() if any(sign in text for sign in signs)]
        found += [(system, text) for system in systems or ["gpuprof"]]
    found.append(
        ("nemo-rl", "NRL_NSYS_WORKER_PATTERNS: '*policy*'\nNRL_NSYS_PROFILE_STEP_RANGE: 3:5\n")
    )
    found += [("verl", text) for text in (verl_examples.OLDEST, verl_examples.OLD)]
    found.append(("rlinf", yaml.safe_dump(rlinf_examples.settings(rlinf_examples.PRESET))))
    missing = {"gpuprof", *_SIGNS} - {system for system, _ in found}
    assert not missing, f"no configuration of {missing} found"
    return found


def mutate(text: str, other: str, chance: random.Random) -> str:
    """`text` with a few changes, some with parts of `other`."""
    for _ in range(chance.randint(1, 4)):
        lines = text.split("\n")
        at = chance.randrange(len(lines))
        kind = chance.randrange(8)
        if kind == 0:
            lines[at] = lines[at].partition(":")[0] + ": " + chance.choice(_HOSTILE)
        elif kind == 1:
            lines.insert(at, chance.choice(other.split("\n")))
        elif kind == 2:
            del lines[at]
        elif kind == 3:
            lines[at] = " " * chance.randrange(5) + lines[at].lstrip()
        elif kind == 4:
            lines[at] += chance.choice(_HOSTILE)
        elif kind == 5:
            lines = lines[:at] + lines[at:] * chance.randint(2, 3)
        elif kind == 6:
            position = chance.randrange(len(text) + 1)
            end = position + chance.randrange(4)
            lines = [text[:position] + chance.choice("[]{}:,&*!|>'\"%@`#-\0\n ~") + text[end:]]
        else:
            words = re.findall(r"\w+", other) or ["x"]
            lines[at] = re.sub(r"\w+", chance.choice(words), lines[at], count=1)
        text = "\n".join(lines)[:50_000]
    return text


def override(text: str, chance: random.Random) -> str:
    """An override for one of the keys in `text`."""
    keys = re.findall(r"([\w.]+):", text) or ["steps"]
    path = ".".join(chance.choices(keys, k=chance.randint(1, 3)))
    sign = chance.choice(["", "+", "++", "~"])
    return f"{sign}{path}={chance.choice(_HOSTILE)}"


def try_one(system: str, text: str, overrides: list[str], environ: dict[str, str]) -> None:
    """Read and plan it, in every way that a user does."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "config.yaml")
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            config = load(
                file,
                system=system,
                overrides=overrides,
                environ={**environ, "HOME": directory},
            )
            str(plan(config, "Actor=2:1,Rollout=1"))
        except GpuprofError as error:
            message = str(error)
            message.encode()
            assert message.strip()
            assert not message.startswith(":"), message
            assert len(message) < 1_000_000, f"a message of {len(message)} characters"


def run(seed: int, count: int) -> None:
    """Try `count` mutations; raises at the first that ends otherwise than it should."""
    texts = corpus()
    for number in range(seed, seed + count):
        chance = random.Random(number)
        system, text = chance.choice(texts)
        mutated = mutate(text, chance.choice(texts)[1], chance)
        overrides = [override(text, chance) for _ in range(chance.choice([0, 0, 1, 2]))]
        environ: dict[str, Any] = {}
        if chance.random() < 0.2:
            name = chance.choice(["STEPS", "RANKS", "GROUPS", "BACKEND", "MAX_BYTES", "NSIGHT"])
            environ[f"GPUPROF_{name}"] = chance.choice(_HOSTILE)
        try:
            with within(SECONDS):
                try_one(system, mutated, overrides, environ)
        except (Exception, Hang) as error:
            raise AssertionError(
                f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}\n"
                f"system {system}, overrides {overrides!r}, environment {environ!r}, file:\n"
                f"{mutated[:2000]}\nagain: python tests/fuzz --seed {number} --count 1 {NAME}"
            ) from error
