"""The contract's version, and how a backend records."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gpuprof.backend import contract, hookimpl, loading
from gpuprof.backend.boundary import PLUGINS
from gpuprof.errors import PluginError

BACKEND = """
import attrs
from gpuprof.backend import hookimpl

@attrs.frozen
class Options:
    pass

class Backend:
    {declares}
    Options = Options
    def __init__(self, options):
        pass
    @hookimpl
    def {hook}(self):
        pass
"""


def load(install: Any, declares: str, hook: str = "inject_env", requires: str = "") -> Any:
    """Load an installed backend with a line in its class."""
    install(BACKEND.format(declares=declares, hook=hook), requires=requires, mine="Backend")
    return loading.load_backend("mine", "backend")


@pytest.mark.parametrize("declared", ["", "contract = 2", "contract = (1, 2)", "contract = (2, 9)"])
def test_a_backend_of_this_contract(install: Any, declared: str) -> None:
    """Its version, a range with it, or nothing, which is the oldest version that is taken."""
    assert "Backend" == load(install, declared).__name__


@pytest.mark.parametrize("declared", ["contract = 9", "contract = (9, 12)"])
def test_a_backend_of_a_newer_contract_is_refused(install: Any, declared: str) -> None:
    """The message names both versions and the release that the distribution requires."""
    with pytest.raises(
        PluginError,
        match=r"^backend: 'mine' \(plugin_\d+ 1.0\) is written for version 9 of the contract and "
        r"needs gpuprof >=7.1,<8; this gpuprof, [\d.]+\w*, has version 2. Upgrade gpuprof$",
    ):
        load(install, declared, requires="gpuprof >=7.1,<8")


def test_a_newer_backend_that_requires_nothing(install: Any) -> None:
    """It needs a newer gpuprof, whichever that is."""
    with pytest.raises(PluginError, match="needs a newer gpuprof; this"):
        load(install, "contract = 9", requires="gpuprof-timing>=3")


def test_a_backend_of_a_contract_that_is_gone(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that no longer works is refused; a range that goes on is not."""
    monkeypatch.setattr(contract, "OLDEST", 3)
    monkeypatch.setattr(contract, "CONTRACT", 5)
    with pytest.raises(PluginError, match=r"version 2 .* takes 3 to 5. Upgrade plugin_\d+, or"):
        load(install, "contract = (1, 2)")


def test_a_range_that_reaches_into_this_contract(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before the oldest version and goes on behind it."""
    monkeypatch.setattr(contract, "OLDEST", 3)
    monkeypatch.setattr(contract, "CONTRACT", 5)
    assert "Backend" == load(install, "contract = (1, 3)").__name__


@pytest.mark.parametrize("declared", ["'1'", "0", "True", "(2, 1)", "(1, 2, 3)", "None"])
def test_a_version_that_is_none(install: Any, declared: str) -> None:
    """The value and what is valid."""
    with pytest.raises(PluginError, match=re.escape(f"contract = {declared} is not valid; exp")):
        load(install, f"contract = {declared}")


def test_a_plugin_has_a_version_too(install: Any) -> None:
    """Whatever is loaded is asked."""
    install(
        BACKEND.format(declares="contract = 9", hook="inject_env"), plugins={"extra": "Backend"}
    )
    with pytest.raises(PluginError, match=r"^plugins\[0\]: 'extra' .* version 9"):
        loading.load("extra", "plugins[0]", PLUGINS)


def test_a_hook_of_a_newer_contract_can_be_optional(install: Any) -> None:
    """A backend of several versions marks what older ones lack."""
    source = BACKEND.format(declares="contract = (2, 3)", hook="inject_env")
    newer = "    @hookimpl(optionalhook=True)\n    def of_contract_3(self):\n        pass\n"
    install(source + newer, mine="Backend")
    backend = loading.load_backend("mine", "backend")
    assert ["backend"] == [
        name for name, _ in loading.make_hooks(backend, None, []).list_name_plugin()
    ]


@pytest.mark.parametrize(
    ("hooks", "expected"),
    [
        (("render_command", "start_capture", "inject_env"), "wraps"),
        (("start_capture", "inject_env"), "in_process"),
        (("open_range",), "in_process"),
        (("inject_env", "expected_files"), "env_only"),
        (("expected_files",), None),
    ],
)
def test_the_hooks_tell_how_a_backend_records(hooks: tuple[str, ...], expected: str | None) -> None:
    """Nothing else has to say it."""
    made = type("Backend", (), {hook: hookimpl(lambda self: None) for hook in hooks})
    assert expected == contract.capability(made)
