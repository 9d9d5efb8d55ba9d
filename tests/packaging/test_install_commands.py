"""No shown command installs our distributions by name, as PyPI's `gpuprof` is not ours."""

from __future__ import annotations

import ast
import io
import re
import shlex
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
TEXTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "changelog.d/*.md",
    "docs/**/*.md",
    "timing/README.md",
    "testing/README.md",
    "frameworks/*/README.md",
    "backends/*/README.md",
    "examples/**/*.md",
    "scripts/*",
    ".ci/run",
    "Makefile",
)
PYTHON = (
    "core/src/**/*.py",
    "timing/src/**/*.py",
    "backends/*/src/**/*.py",
    "testing/src/**/*.py",
    "frameworks/*/src/**/*.py",
    "examples/**/*.py",
)

# pip, pipx and uv, options before the subcommand included.
COMMAND = re.compile(
    r"\b(?:pip[\d.]*|pipx|uv(?:\s+(?:pip|tool))?)(?:\s+-\S+(?:\s+[^-\s]\S*)?)*?\s+(?:install|add)\s"
)
REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*(?:[<>=!~;].*)?"
)
UNKNOWN = "unknown"  # stands for what only the running program knows


def bare_requirements(text: str) -> list[str]:
    """The requirements in `text` that pip would look up on the index by our names."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        for command in COMMAND.finditer(line):
            found += [word for word in words(line[command.end() :]) if is_bare(word)]
    return found


def words(arguments: str) -> list[str]:
    """The words of a command, up to the next command or the end of inline code."""
    arguments = arguments.partition("`")[0]
    lexer = shlex.shlex(arguments, posix=True, punctuation_chars=";|&()")
    lexer.whitespace_split = True
    found = []
    try:
        for word in lexer:
            if not word.strip(";|&()"):
                break
            found.append(word)
    except ValueError:  # an apostrophe of the prose around the command
        return [word.strip("'\"") for word in arguments.split()]
    return found


def is_bare(word: str) -> bool:
    """Whether a word is a requirement by one of our names, and no path, file or URL."""
    match = REQUIREMENT.fullmatch(word.rstrip(".,:"))
    if match is None or match["name"].endswith((".whl", ".tar.gz")):
        return False
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    return name == "gpuprof" or name.startswith("gpuprof-")


def texts_of_python(source: str) -> Iterator[str]:
    """A program's strings, lists of strings as commands, and comments."""
    for node in ast.walk(ast.parse(source)):
        text = text_of(node)
        if text is not None:
            yield text
        elif isinstance(node, ast.List | ast.Tuple):
            elements = [text_of(element) for element in node.elts]
            yield shlex.join(UNKNOWN if element is None else element for element in elements)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def text_of(node: ast.AST) -> str | None:
    """The text of a string or an f-string, `None` for anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value) or UNKNOWN for value in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def files(*patterns: str) -> list[Path]:
    """The files of the checkout that match."""
    return sorted(path for pattern in patterns for path in CHECKOUT.glob(pattern) if path.is_file())


def name_of(path: Path) -> str:
    """A path as the test's name shows it."""
    return path.relative_to(CHECKOUT).as_posix()


@pytest.mark.parametrize("path", files(*TEXTS), ids=name_of)
def test_no_shown_command_installs_ours_by_name(path: Path) -> None:
    """Pages and scripts install our distributions by path."""
    assert [] == bare_requirements(path.read_text())


@pytest.mark.parametrize("path", files(*PYTHON), ids=name_of)
def test_no_program_installs_ours_by_name(path: Path) -> None:
    """Messages, docstrings and commands of our programs install our distributions by path."""
    assert [] == [
        found for text in texts_of_python(path.read_text()) for found in bare_requirements(text)
    ]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pip install gpuprof", ["gpuprof"]),
        ("pip3 install 'gpuprof[nsight]'", ["gpuprof[nsight]"]),
        (
            'python -m pip install --quiet "gpuprof[nsight]>=0.1,<0.2"',
            ["gpuprof[nsight]>=0.1,<0.2"],
        ),
        ("pip install -e ./timing gpuprof-timing", ["gpuprof-timing"]),
        ("$(BIN)/pip install gpuprof_nsight==0.1.0", ["gpuprof_nsight==0.1.0"]),
        ("pip --quiet --python .venv install gpuprof", ["gpuprof"]),
        ("uv pip install GPUprof", ["GPUprof"]),
        ("uv add gpuprof", ["gpuprof"]),
        ("pip install \\\n    ./timing \\\n    gpuprof-rocprof-sys", ["gpuprof-rocprof-sys"]),
        ("pip install torch && pip install gpuprof", ["gpuprof"]),
        ("You don't need more than `pip install gpuprof`.", ["gpuprof"]),
        ("That's all: pip install gpuprof.", ["gpuprof."]),
    ],
)
def test_a_bare_requirement_is_found(command: str, expected: list[str]) -> None:
    """The checker can fail: it sees each name of ours however the command is written."""
    assert expected == bare_requirements(command)


@pytest.mark.parametrize(
    "command",
    [
        "pip install ./timing '.[nsight]' ./backends/nsight",
        "pip install --editable . -e ./backends/rocprof_sys",
        "pip install dist/gpuprof-0.1.0-py3-none-any.whl",
        "pip install gpuprof-0.1.0-py3-none-any.whl",
        "pip install 'gpuprof @ git+https://example.org/gpuprof'",
        "pip install ./timing  # brings gpuprof",
        "pip install --group test; python -c 'import gpuprof'",
        "`pip install ./timing` installs gpuprof-timing",
        "pip install gpuprofiler",
        "gpuprof plan",
    ],
)
def test_a_path_is_not_a_bare_requirement(command: str) -> None:
    """Paths, archives, direct references and other projects pass."""
    assert [] == bare_requirements(command)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('hint = f"Run: pip install gpuprof-{name}"', "gpuprof-unknown"),
        ('subprocess.run([sys.executable, "-m", "pip", "install", "gpuprof"])', "gpuprof"),
        ("# pip install gpuprof\n", "gpuprof"),
        ('"pip install " "gpuprof"', "gpuprof"),
    ],
)
def test_a_bare_requirement_is_found_in_a_program(source: str, expected: str) -> None:
    """The checker sees commands in f-strings, lists, comments and strings in several parts."""
    assert expected in [
        found for text in texts_of_python(source) for found in bare_requirements(text)
    ]


def test_the_commands_of_the_setup_script_are_seen() -> None:
    """The checker does not pass because it finds no command."""
    assert COMMAND.search((CHECKOUT / "scripts" / "setup.sh").read_text())
