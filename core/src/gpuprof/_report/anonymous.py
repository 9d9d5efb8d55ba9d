"""Copies runs with hashed names, so that they can be shown to others.

The same name gets the same hash in all runs of one export. Numbers stay as they are. What is not
known to be harmless is hashed or left out, so a new kind of text in a run's files stays hidden.
"""

from __future__ import annotations

import base64
import fnmatch
import functools
import hashlib
import json
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from glob import escape
from pathlib import Path
from typing import Any, get_type_hints

import attrs
import numpy as np

from gpuprof._analysis import samples
from gpuprof._analysis.path import CALLS
from gpuprof._analysis.waits import COMMUNICATES, READS_DEVICE, Waits
from gpuprof._artifacts import alive, formats, runs, stacks
from gpuprof._artifacts import ledger as ledgers
from gpuprof._artifacts.ledger import SUFFIX as LEDGER
from gpuprof._config import schema
from gpuprof._config.schema import MOST_WAITS
from gpuprof._report.trees import DRIVER
from gpuprof._session.blocks import BlockFile
from gpuprof._session.environment import Environment
from gpuprof._session.file import SESSION_VERSION, SessionFile, StepSums, TotalsEntry, WindowEntry
from gpuprof._session.instruments.collectives import COLLECTIVES, POINT_TO_POINT
from gpuprof._session.instruments.coroutines import RUN, SLEEP
from gpuprof._session.ledger import ENDED, Header, key_of
from gpuprof._session.stacks import SUFFIX as STACKS
from gpuprof._shim.files import write_json
from gpuprof._shim.safe import UnsafeFile, make_directory, open_regular
from gpuprof.errors import ConfigError, OutputError

KNOWN = frozenset({*sys.stdlib_module_names, "gpuprof", "gpuprof_timing", "numpy", "ray", "torch"})
"""The packages whose functions, modules and files keep their names."""
_SCOPES = frozenset(
    {
        *CALLS, RUN, SLEEP, "(more)", "DataLoader.next", ENDED, "backward",
        "forward", "grad", "main_loop", "optimizer", "queue.get", "queue.put", "ray.put", "save",
        "torch.wait",
        *(f"torch.{name}" for name in (*COLLECTIVES, *POINT_TO_POINT)),
        *samples.KNOWN, *samples.GAUGES,
    }
)  # fmt: skip
"""The names that gpuprof itself gives to scopes, phases and attributes."""
_WORDS = frozenset(
    {
        "AsyncIO", "MainThread", "Thread", "ThreadPoolExecutor", DRIVER, "Program", "Worker",
        "child", "default", "dictcomp", "genexpr", "lambda", "listcomp", "locals", "module",
        "profile", "py", "setcomp", "start", "step", "steps", "thread", "__main__",
        *(name for name in (*dir(type), *dir(dict), *dir(iter([]))) if name.startswith("__")),
    }
)  # fmt: skip
"""Words that stay inside names: gpuprof's own, and Python's own."""
_NAMES = frozenset(
    {
        "group", "incarnation", "key", "label", "name", "scope", "step_at", "window", "worker",
        "worker_groups", "workers",
    }
)  # fmt: skip
"""Keys whose texts are names, which are hashed word by word: ``Env-3`` keeps its rank."""
_HARMLESS = frozenset(
    {
        "backend", "cause", "driver", "event", "format", "gpus", "gpuprof", "instruments", "kind",
        "process_start", "profiler", "python", "ray", "role", "squares", "state", "torch", "why",
    }
)  # fmt: skip
"""Keys whose texts are numbers, versions, or words of gpuprof's own."""
_EMPTY: dict[str, Any] = {
    "command": [], "env": {}, "extras": [], "file": None, "files": None, "notes": [],
    "overhead": "", "planned": "", "reason": "",
}  # fmt: skip
"""Keys whose values are left out: free text, and what belongs to files that are not copied."""
_FREE = frozenset({"error", "faults", "unwrapped"})
"""Keys of free text of which the copy says only that there was some."""
_WAITS = frozenset({"*", "barrier", "data", "nothing"})
_LIBRARY = re.compile(
    r".*[/\\](?P<place>(?:site|dist)-packages|lib(?:64)?[/\\]python[0-9.]+t?)[/\\]"
)
_OWN = re.compile(r".*[/\\](?=gpuprof(?:_timing)?[/\\])")
_KEYS = {"link": ("key",), "sent": ("key", "needs"), "samp": ("sample",), "sbeg": ("sample",)}
"""The columns of tables that have keys made of texts."""
_OTHER_KEYS = frozenset(
    {
        # of timing trees
        "average", "children", "count", "device_count", "device_total", "ended", "key", "kind",
        "last", "maximum", "minimum", "open", "open_elapsed", "pooled", "spread", "squares",
        "total", "window",
        # of events in a ledger
        "at", "bound", "collections", "depth", "entered", "epochs", "event", "inside",
        "left", "level", "line", "number", "offset", "ranks", "steps", "time", "why",
        # of places and tracks in a ledger, and of versions
        "id", "native", "parent", "profiler", "task", "thread", "waits_for",
    }
)  # fmt: skip
"""Keys of a run's files that no type lists."""


@functools.cache
def _known_keys() -> frozenset[str]:
    """The keys of a run's JSON files that are gpuprof's own."""
    types = (
        formats.RunFile, formats.Manifest, formats.RowEntry, formats.ReceiptEntry, formats.Setup,
        formats.EarlyEnd, formats.WorkerEntry, formats.FileEntry, formats.RankProcess, Environment,
        Header, SessionFile, StepSums, TotalsEntry, WindowEntry,
    )  # fmt: skip
    settings = (value for value in vars(schema).values() if isinstance(value, type))
    fields = (attrs.fields(kind) for kind in settings if attrs.has(kind))
    return frozenset(
        {
            *_OTHER_KEYS,
            *(key for kind in types for key in get_type_hints(kind)),
            *(field.name for of_class in fields for field in of_class),
        }
    )


class Names:
    """Hashes texts; the same text always gets the same hash."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)
        self._hash = functools.cache(self._hashed)

    def _hashed(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, digest_size=6, key=self._salt).digest()

    def whole(self, text: str) -> str:
        """A text's hash; empty for an empty text."""
        return f"x{self._hash(text.encode('utf-8', 'surrogatepass')).hex()[:10]}" if text else ""

    def words(self, text: str) -> str:
        """A text with each of its words hashed, except numbers and gpuprof's own words."""
        return re.sub(r"\w+", lambda match: self._word(match[0]), text)

    def scope(self, text: str) -> str:
        """The name of a scope, phase or attribute.

        The word stays that tells gpuprof that the scope may wait for other processes or a device.
        """
        if text in _SCOPES:
            return text
        hashed = self.words(text)
        for pattern in (COMMUNICATES, READS_DEVICE):
            sign = pattern.search(text)
            if sign is not None and not pattern.search(hashed):
                word = sign[0].strip("/: ")
                hashed += word if word.startswith(".") else f"-{word.strip('._-')}"
        return hashed

    def function(self, about: Mapping[str, str]) -> dict[str, str]:
        """A sampled function: its name, module and file.

        Of the packages in `KNOWN` these stay, without the directory in which they are installed.
        """
        function, module, file = about["function"], about["module"], about["file"]
        known = module.partition(".")[0] in KNOWN or file.startswith("<frozen ")
        library = _LIBRARY.match(file)
        own = _OWN.match(file) if module.startswith("gpuprof") else None
        if library:
            inside = file[library.end() :]
            place = re.sub(r"[0-9.]+t?$", "3", library["place"])
            shown = inside if known else self._path(inside)
            path = f"/lib/{place}/{shown}".replace("/lib/lib", "/lib")
        elif own and known:
            path = f"/{file[own.end() :]}"
        elif file.startswith("<"):
            path = file if known else self.words(file)
        else:
            known = False
            directory, _, name = file.rpartition("/")
            path = f"{'/' * bool(directory)}{self.whole(directory)}/{self._path(name)}"
        if not known:
            function, module = self.words(function), self.words(module)
        return {"function": function, "module": module, "file": path}

    def key(self, number: int) -> int:
        """A key made of a text; see `key_of`. 0, which is none, stays."""
        return key_of(self.key_text(number)) if number else 0

    def key_text(self, number: int) -> str:
        """The text of a hashed key: eight characters, which stand for themselves."""
        return base64.urlsafe_b64encode(self._hash(number.to_bytes(8, "little"))).decode()

    def _path(self, path: str) -> str:
        return "/".join(self.words(part) for part in re.split(r"[/\\]", path))

    def _word(self, word: str) -> str:
        return word if word in _WORDS or word.isdecimal() else self.whole(word)


def export(directories: Iterable[str], output: Path) -> tuple[list[Path], list[str]]:
    """Copy runs with hashed names.

    Returns:
        The copies' directories, and a sentence for each file that cannot be read.
    """
    names = Names()
    copies, problems = [], []
    for directory in directories:
        copy = _Copy(names, directory, output)
        copy.write()
        copies.append(copy.directory)
        problems += copy.problems
    return copies, problems


class _Copy:
    def __init__(self, names: Names, directory: str, output: Path) -> None:
        about = runs.about(directory)
        if about is None or about.beginning is None:
            raise ConfigError(f"{directory}: not a run: run.json is missing or damaged")
        if about.goes_on():
            raise ConfigError(f"{directory}: the run still goes on; export it when it has ended")
        self._names = names
        self._from = Path(directory)
        self._about = about
        self._beginning = about.beginning
        patterns = about.beginning["config"].get("waits")
        self._patterns: dict[str, str | None] = patterns if isinstance(patterns, dict) else {}
        self._waits = Waits(self._patterns)
        self._expanded: dict[str, str | None] = {}
        self._name = f"run-{names.whole(self._beginning['run'])}"
        self.directory = output / self._name
        self.problems: list[str] = []

    def write(self) -> None:
        try:
            make_directory(str(self.directory))
            for path in sorted(self._from.glob("*/*")):
                if not path.parent.name.startswith("."):
                    self._file(path)
            self._ranks()
            self._write("manifest.json", self._manifest())
            self._write("run.json", self._run_file())  # last: it has what scopes wait for
        except OSError as error:
            raise OutputError(
                f"{error.filename or self.directory}: cannot be written: {error.strerror}"
            ) from None

    # Files

    def _file(self, path: Path) -> None:
        try:
            if path.suffix in (LEDGER, STACKS):
                self._blocks(path)
            elif path.suffix == ".json":
                self._session(path)
        except (OutputError, UnsafeFile, ValueError, LookupError) as error:
            self.problems.append(f"{path}: left out: {error}")

    def _write(self, name: str, data: Any) -> None:
        if data is not None:
            write_json(str(self.directory / name), data)

    def _target(self, path: Path) -> Path:
        folder = self.directory / self._names.whole(path.parent.name)
        make_directory(str(folder))
        return folder / f"{self._names.words(path.stem)}{path.suffix}"

    def _blocks(self, path: Path) -> None:
        """Copy a ledger, or a file of stacks, if it can be read."""
        ledger = ledgers.read(path.with_suffix(LEDGER))
        if path.suffix == STACKS:
            read = stacks.read(ledger)
            self.problems += [read.problem] if read is not None and read.problem else []
        with open(open_regular(str(path)), "rb") as file:
            header, blocks = ledgers.blocks_of(path, file)
            copy = BlockFile(str(self._target(path)), self._json(header))
            try:
                for kind, content in blocks:
                    changed = self._block(kind, content)
                    copy.add(kind, changed, empty=not content)
                    copy.write()
            finally:
                copy.close()

    def _block(self, kind: str, content: bytes) -> bytes:
        """A block's content; empty for a kind that is not known."""
        if kind in ledgers.TABLES or kind in ("stck", "smpl"):
            return self._keys(kind, content) if kind in _KEYS else content
        change: dict[str, Callable[[Any], Any]] = {
            "plac": self._place,
            "trak": self._json,
            "word": self._word,
            "evnt": self._json,
            "code": self._names.function,
            "snam": lambda text: self._names.key_text(key_of(text)),
        }
        if kind not in change:
            return b""
        entries = [change[kind](entry) for entry in json.loads(content)]
        return json.dumps(entries, separators=(",", ":")).encode()

    def _keys(self, kind: str, content: bytes) -> bytes:
        rows = np.frombuffer(content, np.dtype(ledgers.TABLES[kind][1])).copy()
        for column in _KEYS[kind]:
            keys, positions = np.unique(rows[column], return_inverse=True)
            hashed = np.array([self._names.key(key) for key in keys.tolist()], "<u8")
            rows[column] = hashed[positions]
        return bytes(rows.tobytes())

    def _word(self, entry: dict[str, Any]) -> dict[str, Any]:
        return {"id": entry["id"], "name": self._names.scope(entry["name"])}

    def _place(self, entry: dict[str, Any]) -> dict[str, Any]:
        """A place, with what it waits for: patterns of names do not match the hashes."""
        key, waits_for = entry["key"], entry.get("waits_for")
        hashed = self._names.scope(key)
        is_configured = any(fnmatch.fnmatchcase(key, pattern) for pattern in self._patterns)
        if is_configured and len(self._expanded) < MOST_WAITS:
            self._expanded[escape(hashed)] = self._whom(self._waits.configured(key))
        elif waits_for is None:
            waits_for = self._waits.of(key)
        place = {"id": entry["id"], "parent": entry["parent"], "key": hashed}
        return place if waits_for is None else {**place, "waits_for": self._whom(waits_for)}

    def _whom(self, waits_for: str | None) -> str | None:
        return waits_for if waits_for in (None, *_WAITS) else self._names.words(str(waits_for))

    def _session(self, path: Path) -> None:
        data = formats.load(path)
        if path.stem != DRIVER:
            formats.check(path, data, SessionFile, SESSION_VERSION)
        write_json(str(self._target(path)), self._json(data))

    def _ranks(self) -> None:
        ranks, _ = alive.read_ranks(self._from)
        for path in sorted((self._from / ".ranks").glob("*.process")) if ranks else ():
            make_directory(str(self.directory / ".ranks"))
            data = {**formats.load(path), "over": self._about.goes_on() is False}
            name = f".ranks/{self._names.words(path.stem)}{path.suffix}"
            self._write(name, {**self._json(data), "start": None})

    def _manifest(self) -> dict[str, Any] | None:
        path = self._from / "manifest.json"
        try:
            data = formats.load(path, formats.LARGEST_MANIFEST)
            manifest = formats.check(path, data, formats.Manifest, formats.MANIFEST_VERSION)
        except FileNotFoundError:
            return None
        except OutputError as error:
            self.problems.append(str(error))
            return None
        workers = [{**worker, "environment": {}} for worker in manifest.get("workers", [])]
        known = {"workers": workers} if "workers" in manifest else {}
        copy: dict[str, Any] = {**self._json({**manifest, **known}), "files": []}
        copy["receipt"]["directory"] = None
        copy["setup"]["config"] = self._config()
        return copy

    def _run_file(self) -> dict[str, Any]:
        copy: dict[str, Any] = self._json({**self._beginning, "driver": None})
        places = {"directory": f"/{self._name}", "working_dir": "/"}
        return {**copy, **places, "config": self._config()}

    # Texts

    def _config(self) -> dict[str, Any]:
        settings = {
            key: value for key, value in self._beginning["config"].items() if key != "waits"
        }
        copy: dict[str, Any] = self._json(settings)
        return {**copy, "waits": self._expanded} if self._expanded else copy

    def _json(self, value: Any, key: str = "") -> Any:
        """A value of JSON with hashed texts."""
        if isinstance(value, dict):
            rename = self._rename(key)
            return {rename(name): self._value(name, of_name) for name, of_name in value.items()}
        if isinstance(value, list):
            return [self._json(entry, key) for entry in value]
        return self._text(key, value) if isinstance(value, str) else value

    def _value(self, key: str, value: Any) -> Any:
        if key in _EMPTY:
            return _EMPTY[key]
        if key == "nodes" and isinstance(value, dict):
            return {
                self._names.whole(node): [self._names.words(name) for name in names]
                for node, names in value.items()
            }
        if key == "gpus" and isinstance(value, dict):
            return {self._names.whole(node): gpus for node, gpus in value.items()}
        if key == "run" and isinstance(value, str):
            return self._name
        return self._json(value, key)

    def _rename(self, key: str) -> Callable[[str], str]:
        """What to do with the keys of a mapping."""
        if key == "sums":
            return self._names.scope
        if key == "skipped":
            return self._names.whole
        return lambda name: name if name in _known_keys() else self._names.words(name)

    def _text(self, key: str, text: str) -> str:
        if key in _HARMLESS or text == DRIVER:
            return text
        if key in _FREE:
            return "(left out)"
        if key in _NAMES:
            return self._names.scope(text)
        return self._names.whole(text)
