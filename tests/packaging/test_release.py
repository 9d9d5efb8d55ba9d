"""What a release decides stands in release.toml, and everything else follows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.scripts import CHECKOUT, script

distributions = script("distributions")
support_page = script("support_page")


def decided(**changes: str) -> str:
    """release.toml with other values."""
    text = (CHECKOUT / "release.toml").read_text()
    for key, value in changes.items():
        text = re.sub(rf'^{key} = ".*"$', f'{key} = "{value}"', text, flags=re.MULTILINE)
    return text


def rewritten(folder: str, **changes: str) -> str:
    """A pyproject.toml as the script writes it after such a change."""
    text = (CHECKOUT / folder / "pyproject.toml").read_text()
    made: str = distributions.project(text, "gpuprof", distributions.release(decided(**changes)))
    return made


def test_everything_says_what_is_decided() -> None:
    """Nobody has changed a name or a version elsewhere."""
    assert [] == [
        path for path, text in distributions.files(CHECKOUT).items() if path.read_text() != text
    ]


@pytest.mark.parametrize("folder", distributions.PROJECTS)
def test_a_new_name_is_everywhere(folder: str) -> None:
    """No distribution and no requirement keeps the old one."""
    text = rewritten(folder, name="stepscope")
    assert 'name = "stepscope' in text
    assert [] == re.findall(r'"gpuprof[^"]*[<>=][^"]*"', text)


def test_a_new_version_is_everywhere() -> None:
    """Ours require each other within the new minor version."""
    text = rewritten("backends/nsight", version="1.4.2")
    assert 'version = "1.4.2"' in text
    assert '"gpuprof>=1.4,<1.5"' in text


def test_a_licence_is_in_every_project() -> None:
    """Once, however often the script runs."""
    release = distributions.release(decided(license="MIT"))
    once = distributions.project(rewritten("timing", license="MIT"), "gpuprof", release)
    assert ['license = "MIT"'] == re.findall("^license.*$", once, re.MULTILINE)


def test_a_name_that_pypi_refuses_is_refused() -> None:
    """Before anything is written."""
    with pytest.raises(SystemExit, match="'Step Scope' is not valid"):
        distributions.release(decided(name="Step Scope"))


@pytest.mark.parametrize(
    ("tag", "chosen", "expected"),
    [
        ("v0.1.0", "MIT", ""),
        ("v0.1.1", "MIT", "release.toml: version: '0.1.0' is not that of the tag 'v0.1.1'"),
        ("v0.1.0", "", "release.toml: license: none has been chosen yet"),
    ],
)
def test_a_tag_is_published_if_all_is_decided(tag: str, chosen: str, expected: str) -> None:
    """The tag is the version, and there is a licence."""
    release = distributions.release(decided(license=chosen, version="0.1.0"))
    assert expected == distributions.may_be_published(tag, release)


@pytest.mark.exhaustive
def test_a_renamed_release_works(checkout_copy: Path, tmp_path: Path) -> None:
    """One line of release.toml and the script: then it builds, installs and tells its version."""
    (checkout_copy / "release.toml").write_text(decided(name="stepscope"))
    subprocess.run([sys.executable, "scripts/distributions.py"], cwd=checkout_copy, check=True)
    for project in distributions.PROJECTS[:3]:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path)]
        subprocess.run([*command, str(checkout_copy / project)], check=True)
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "virtualenv", "--quiet", str(environment)], check=True)
    wheels = sorted(str(path) for path in tmp_path.glob("*.whl"))
    assert all(Path(wheel).name.startswith("stepscope") for wheel in wheels)
    subprocess.run([str(environment / "bin" / "pip"), "install", "--quiet", *wheels], check=True)
    command = [str(environment / "bin" / "gpuprof")]
    for words, expected in (["--version"], "version 0.1.0"), (["backends"], "stepscope-nsight"):
        done = subprocess.run([*command, *words], check=True, capture_output=True, text=True)
        assert expected in done.stdout


def test_the_table_of_releases_is_filled() -> None:
    """A release that is new goes in by its number, a known one changes nothing."""
    page = "| nsys | 2022.4.2, 2023.4.4 | CI |\n| Ray | 2.60.0 | CI |\n"
    expected = "| nsys | 2022.4.2, 2023.2.1, 2023.4.4 | CI |\n| Ray | 2.60.0 | CI |\n"
    assert expected == support_page.filled(page, "nsys 2023.2.1\nRay 2.60.0\n")


def test_fragments_stand_under_headings_of_the_changelog() -> None:
    """scriv sorts by them; under any other, a change would stand apart from its like."""
    settings = (CHECKOUT / "pyproject.toml").read_text()
    known = re.findall(r'"(\w+)"', settings.split("\ncategories = ")[1].split("\n")[0])
    fragments = {
        path.name: path.read_text()
        for path in (CHECKOUT / "changelog.d").glob("*.md")
        if path.name != "README.md"  # as for scriv
    }
    assert [] == [
        name
        for name, text in fragments.items()
        if not text.startswith("#") or {*re.findall("^#+ (.*)$", text, re.MULTILINE)} - {*known}
    ]


def test_pre_commit_runs_what_make_check_runs() -> None:
    """Command by command."""
    text = (CHECKOUT / "Makefile").read_text()
    recipe = text.split("\ncheck: ")[1].split("\n\n")[0].splitlines()[1:]
    hooks = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [line.strip("\t@").replace("$(BIN)", ".venv/bin") for line in recipe] == [
        hook["entry"] for hook in hooks
    ]


def test_the_workflow_runs_what_ci_runs() -> None:
    """`.ci/run` on every push, and nothing is published unless all of it has passed."""
    workflow = yaml.safe_load((CHECKOUT / ".github" / "workflows" / "ci.yml").read_text())
    jobs = workflow["jobs"]
    assert ".ci/run" in [step.get("run") for step in jobs["test"]["steps"]]
    assert ["test", "pythons"] == jobs["build"]["needs"] == jobs["wheels"]["needs"]
    assert (["build", "wheels"], {"id-token": "write"}) == (
        jobs["publish"]["needs"],
        jobs["publish"]["permissions"],
    )


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_an_issue_brings_what_doctor_says(name: str) -> None:
    """The form asks for it."""
    form = yaml.safe_load((CHECKOUT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
    assert "`gpuprof doctor --json`" in [each["attributes"]["label"] for each in form["body"]]
