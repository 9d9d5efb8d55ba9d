"""NVTX start/end ranges through ctypes, which releases the interpreter's lock during a call.

The package nvtx holds the lock. Opening or closing a gate takes nsys up to a second, and no Python
thread would run in that time.

NVTX has no library to load: each user binds to the tool itself, as NVTX's header
``nvtxDetail/nvtxInit.h`` (version 3) does. ``NVTX_INJECTION64_PATH`` names the tool's library. Its
``InitializeInjectionNvtx2`` gets a function that returns tables, and writes the tool's functions
into the slots that they point to.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

_CALLBACKS, _VERSION_INFO = 1, 3  # NVTX_ETID_…
_CORE2 = 5  # NVTX_CB_MODULE_CORE2
_SLOTS = 16  # of the largest module
_RANGE_START, _RANGE_END, _DOMAIN_CREATE = 2, 3, 12  # NVTX_CBID_CORE2_Domain…
_VERSION = 3
_ASCII = 1  # NVTX_MESSAGE_TYPE_ASCII

_GetExportTable = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
_GetModule = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint32)
)
_SetVersion = ctypes.CFUNCTYPE(None, ctypes.c_uint32)
_DomainCreate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)


class _Callbacks(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("get_module", _GetModule))


class _VersionInfo(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("set_version", _SetVersion),
    )


class _Attributes(ctypes.Structure):
    """``nvtxEventAttributes_t``."""

    _fields_ = (
        ("version", ctypes.c_uint16),
        ("size", ctypes.c_uint16),
        ("category", ctypes.c_uint32),
        ("color_type", ctypes.c_int32),
        ("color", ctypes.c_uint32),
        ("payload_type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("payload", ctypes.c_uint64),
        ("message_type", ctypes.c_int32),
        ("message", ctypes.c_char_p),
    )


_RangeStart = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.POINTER(_Attributes))
_RangeEnd = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)


class Library:
    """A tool's NVTX functions.

    Args:
        path: the tool's library.

    Raises:
        OSError: the library cannot be loaded, or does not support NVTX.
    """

    def __init__(self, path: str) -> None:
        tables = {module: (ctypes.c_void_p * _SLOTS)() for module in range(1, 7)}
        # The tool may call back at any time: these must live as long as the process.
        self._kept: list[Any] = [tables]
        pointers = {module: _pointers(table) for module, table in tables.items()}
        callbacks = _Callbacks(
            ctypes.sizeof(_Callbacks), _GetModule(functools.partial(_get_module, pointers))
        )
        version = _VersionInfo(
            ctypes.sizeof(_VersionInfo), _VERSION, 0, _SetVersion(lambda version: None)
        )
        tables_to_export = {
            _CALLBACKS: ctypes.addressof(callbacks),
            _VERSION_INFO: ctypes.addressof(version),
        }
        get_table = _GetExportTable(tables_to_export.get)
        self._kept += [pointers, callbacks, version, get_table]
        try:
            initialize = ctypes.CDLL(path).InitializeInjectionNvtx2
        except AttributeError:
            raise OSError(f"{path} does not support NVTX") from None
        initialize.argtypes, initialize.restype = [_GetExportTable], ctypes.c_int
        success = initialize(get_table)
        create, start, end = (
            tables[_CORE2][slot] for slot in (_DOMAIN_CREATE, _RANGE_START, _RANGE_END)
        )
        if not (success and create and start and end):
            raise OSError(f"{path} failed to initialise NVTX")
        self._create = _DomainCreate(create)
        self._start = _RangeStart(start)
        self._end = _RangeEnd(end)

    def domain(self, name: str) -> int:
        """Make a domain. To the tool, domains of the same name are the same domain."""
        return int(self._create(name.encode()) or 0)

    def start_range(self, domain: int, message: str) -> int:
        """Start a range; any thread may end it. Returns its number."""
        attributes = _Attributes(
            _VERSION, ctypes.sizeof(_Attributes), message_type=_ASCII, message=message.encode()
        )
        return int(self._start(domain, attributes))

    def end_range(self, domain: int, number: int) -> None:
        """End a range."""
        self._end(domain, number)


def _pointers(table: ctypes.Array[ctypes.c_void_p]) -> ctypes.Array[ctypes.c_void_p]:
    """The address of each slot of a table; slot 0 is unused."""
    size = ctypes.sizeof(ctypes.c_void_p)
    return (ctypes.c_void_p * _SLOTS)(
        None, *(ctypes.addressof(table) + slot * size for slot in range(1, _SLOTS))
    )


def _get_module(
    pointers: dict[int, ctypes.Array[ctypes.c_void_p]], module: int, table: Any, size: Any
) -> int:
    if module not in pointers:
        return 0
    table[0] = ctypes.addressof(pointers[module])
    if size:
        size[0] = _SLOTS
    return 1


@functools.cache
def library() -> Library | None:
    """The NVTX functions of the tool around this process, or ``None`` without a tool."""
    path = os.environ.get("NVTX_INJECTION64_PATH")
    return Library(path) if path else None
