"""Checks of the class itself: its hooks, its options, what its import does."""

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
from gpuprof.testing._case import Case, fail

HEAVY = ("ray", "torch")
DOES = ("render_command", "start_capture", "open_range")
ONLY_ONE = ("render_command", "open_range")


class ContractChecks(Case):
    """What can be said without running anything."""

    def test_hooks_fit_the_contract(self) -> None:
        """Every marked method is a hook, with arguments that the hook has."""
        try:
            self._hooks()
        except PluginError as error:
            fail(
                str(error),
                "hooks and their arguments are those of gpuprof.backend.hookspecs: "
                f"{', '.join(hookspecs.__all__)}",
            )

    def test_it_does_something(self) -> None:
        """It wraps workers, or opens windows or ranges."""
        hooks = self._hooks().hook
        if not any(getattr(hooks, name).get_hookimpls() for name in DOES):
            fail(
                f"it has none of the hooks {', '.join(DOES)}",
                "implement one of them, and mark it with @gpuprof.backend.hookimpl",
            )

    def test_every_hook_has_its_mark(self) -> None:
        """A method that is called like a hook, or nearly, is one."""
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
                    "mark it with @gpuprof.backend.hookimpl, or give it a leading underscore if it "
                    "is none",
                )

    def test_a_misspelt_hook_is_an_error(self) -> None:
        """gpuprof refuses the class with a hook that does not exist, and says which."""
        variant = type("Misspelt", (self.backend,), {"start_captur": hookimpl(lambda self: None)})
        try:
            self._hooks(variant)
        except PluginError as error:
            if "start_captur" in str(error):
                return
        fail(
            "a misspelt hook went unnoticed",
            "do not override how the class is registered; otherwise this is a fault of gpuprof's",
        )

    def test_a_second_renderer_is_refused(self) -> None:
        """Beside this backend no extra plugin may render the command or open ranges, and it is
        refused by name.
        """
        for hook in ONLY_ONE:
            intruder = type("Intruder", (), {hook: hookimpl(lambda self: None)})()
            try:
                loading.manager(self.make(), [("intruder", intruder)])
            except PluginError as error:
                if error.plugin == "intruder" and hook in str(error):
                    continue
            fail(
                f"an extra plugin with {hook} was taken in",
                "this is a fault of gpuprof's: report it",
            )

    def test_as_an_extra_plugin_it_keeps_to_its_part(self) -> None:
        """With hooks that only the backend may have it is refused beside another one; without them
        it is not.
        """
        taken = [hook for hook in ONLY_ONE if self._implements(hook)]
        try:
            loading.manager(loading.TimingOnly(loading.NoOptions()), [(self.name, self.make())])
        except PluginError as error:
            if taken:
                return
            fail(f"refused as an extra plugin: {error}", "mend what the message says")
        if taken:
            fail(
                f"it was taken in as an extra plugin in spite of {taken[0]}",
                "this is a fault of gpuprof's: report it",
            )

    def test_every_option_has_help(self) -> None:
        """What a key does is said where it is declared, also for keys inside keys."""
        silent = [key.path for key in keys_of(self.backend.Options) if not key.help]
        if silent:
            fail(
                f"options without help: {', '.join(silent)}",
                'declare each as gpuprof.backend.option("what it does", default=…)',
            )

    def test_options_survive_the_way_to_the_worker(self) -> None:
        """The example can be read, and is the same after it has travelled as JSON."""
        try:
            options = structure(self.options, self.backend.Options, "options")
            copied = structure(
                json.loads(json.dumps(attrs.asdict(options))), self.backend.Options, "options"
            )
        except (ConfigError, TypeError, ValueError) as error:
            fail(
                f"the example cannot be read, sent and read again: {error}",
                "use types that JSON has, and attrs classes of them",
            )
        if options != copied:
            fail(
                f"sent {options}, arrived as {copied}",
                "use types that JSON has: lists and not tuples or sets, strings and not paths",
            )

    def test_importing_it_imports_neither_ray_nor_torch(self) -> None:
        """The launcher imports every backend that it is asked for, on machines that have neither."""
        module = self.backend.__module__
        code = f"import sys, {module}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            fail(
                f"{module} cannot be imported by itself: {done.stderr.strip().splitlines()[-1]}",
                "mend the import",
            )
        if done.stdout.strip():
            fail(
                f"importing {module} imports {done.stdout.strip()}",
                "import it in the function that needs it",
            )
