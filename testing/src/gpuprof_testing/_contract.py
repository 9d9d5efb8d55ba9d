"""Checks of the class itself: its hooks, its options, its import."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys

import attrs
from gpuprof._config.describe import keys_of
from gpuprof._config.structure import structure
from gpuprof.backend import hookimpl, hookspecs, loading
from gpuprof.errors import ConfigError, PluginError

from gpuprof_testing import _imports
from gpuprof_testing._case import Case, fail

HEAVY = ("ray", "torch")
IMPORTS = 8
"""Packages that hooks of the launcher's side may import. The page "Write a backend" has the same.
"""
ONLY_ONE = loading.BACKEND_ONLY


class ContractChecks(Case):
    """Checks that run no tool."""

    def test_hooks_fit_the_contract(self) -> None:
        """Every marked method is a hook, with arguments that the hook has."""
        try:
            self._hooks()
        except PluginError as error:
            fail(
                str(error),
                "use the hooks and arguments of gpuprof.backend.hookspecs: "
                f"{', '.join(hookspecs.__all__)}",
            )

    def test_it_does_something(self) -> None:
        """The backend wraps workers, sets variables, or opens windows or ranges."""
        hooks = self._hooks().hook
        if not any(getattr(hooks, name).get_hookimpls() for name in loading.ACTING):
            fail(
                f"the backend has none of the hooks {', '.join(loading.ACTING)}",
                "implement one of them, and mark it with @gpuprof.backend.hookimpl",
            )

    def test_every_hook_has_its_mark(self) -> None:
        """A method with a hook's name, or a similar one, is marked as a hook."""
        for name in dir(self.backend):
            method = getattr(self.backend, name)
            if (
                name.startswith("_")
                or not callable(method)
                or isinstance(method, type)
                or hasattr(method, "gpuprof_impl")
            ):
                continue
            close = difflib.get_close_matches(name, hookspecs.__all__, n=1, cutoff=0.85)
            if close:
                fail(
                    f"{name} looks like the hook {close[0]} and is never called",
                    "mark it with @gpuprof.backend.hookimpl, or begin its name with an underscore",
                )

    def test_a_misspelt_hook_is_an_error(self) -> None:
        """gpuprof refuses a class with an unknown hook and names the hook."""
        variant = type("Misspelt", (self.backend,), {"start_captur": hookimpl(lambda self: None)})
        try:
            self._hooks(variant)
        except PluginError as error:
            if "start_captur" in str(error):
                return
        fail(
            "a misspelt hook went unnoticed",
            "do not override how the class is registered; otherwise this is a bug in gpuprof",
        )

    def test_a_second_renderer_is_refused(self) -> None:
        """An extra plugin with a hook that has one answer is refused by name."""
        for hook in ONLY_ONE:
            intruder = type("Intruder", (), {hook: hookimpl(lambda self: None)})()
            try:
                loading.manager(self.make(), [("intruder", intruder)])
            except PluginError as error:
                if error.plugin == "intruder" and hook in str(error):
                    continue
            fail(
                f"an extra plugin with {hook} was accepted",
                "this is a bug in gpuprof: report it",
            )

    def test_as_an_extra_plugin_it_keeps_to_its_part(self) -> None:
        """As an extra plugin the class is refused if and only if it has a hook of the backend's."""
        own_hooks = [hook for hook in ONLY_ONE if self._implements(hook)]
        try:
            loading.manager(loading.TimingOnly(loading.NoOptions()), [(self.name, self.make())])
        except PluginError as error:
            if own_hooks:
                return
            fail(f"refused as an extra plugin: {error}", "fix the reported problem")
        if own_hooks:
            fail(
                f"accepted as an extra plugin in spite of {own_hooks[0]}",
                "this is a bug in gpuprof: report it",
            )

    def test_every_option_has_help(self) -> None:
        """Every option has a help text, nested ones included."""
        silent = [key.path for key in keys_of(self.backend.Options) if not key.help]
        if silent:
            fail(
                f"options without help: {', '.join(silent)}",
                'declare each as gpuprof.backend.option("what it does", default=…)',
            )

    def test_options_survive_the_way_to_the_worker(self) -> None:
        """The example options are valid, and equal after a round trip through JSON."""
        try:
            options = structure(self.options, self.backend.Options, "options")
            copy = structure(
                json.loads(json.dumps(attrs.asdict(options))), self.backend.Options, "options"
            )
        except (ConfigError, TypeError, ValueError) as error:
            fail(
                f"the example options do not survive a round trip through JSON: {error}",
                "use JSON's types, and attrs classes of them",
            )
        if options != copy:
            fail(
                f"sent {options}, received {copy}",
                "use JSON's types: lists instead of tuples or sets, strings instead of paths",
            )

    def test_importing_it_imports_neither_ray_nor_torch(self) -> None:
        """The launcher imports the backend on machines without Ray or torch."""
        module = self.backend.__module__
        code = (
            f"import sys, {module}; print(); print(*(name for name in {HEAVY!r} if name in "
            "sys.modules))"
        )
        process = self._in_python("-c", code)
        if process.returncode:
            fail(
                f"{module} cannot be imported by itself: {process.stderr.strip().splitlines()[-1]}",
                "fix the import",
            )
        printed, _, imports = process.stdout.removesuffix("\n").rpartition("\n")
        if printed.strip():
            fail(
                f"importing {module} prints {printed.strip()[:200]!r}",
                "print nothing: each process of a job imports it",
            )
        if imports:
            fail(f"importing {module} imports {imports}", "import it in the function that needs it")

    def test_the_launcher_imports_little(self) -> None:
        """Planning, and looking for the tool, load few libraries into the launcher."""
        options = json.dumps(dict(self.options))
        names = self.backend.__module__, self.backend.__qualname__
        process = self._in_python(_imports.__file__, *names, options)
        if process.returncode:
            fail(f"planning alone fails: {process.stderr.strip()[-1000:]}", "see the exception")
        for hook, packages in json.loads(process.stdout.rpartition("\n")[2]).items():
            if len(packages) > IMPORTS:
                fail(
                    f"{hook} imports {len(packages)} packages into the launcher: "
                    f"{', '.join(packages[:8])}…",
                    "look for them with importlib.util.find_spec, or use them in a process of "
                    "their own",
                )

    def _in_python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a fresh Python that can import what this one can."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.run(
            [sys.executable, *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
