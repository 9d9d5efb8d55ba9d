"""SQLite exports with a GPU's work, made without a GPU in the schemas that nsys itself writes.

`tests/nsight/schemas` has the tables of ``nsys export --lazy=false``, which creates also those that
have no row. A test compares the files with the nsys that is installed.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

SCHEMAS = Path(__file__).parents[1] / "nsight" / "schemas"
RELEASES = sorted(path.stem for path in SCHEMAS.glob("*.sql"))

# As documented of CUPTI_ACTIVITY_KIND_GRAPH_TRACE by newer releases. Those here do not have it.
GRAPHS = """
    CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (
        start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL, contextId INTEGER NOT NULL,
        streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER)
"""


def thread(process: int, number: int = 0) -> int:
    """nsys's number of a thread of a process."""
    return (7 << 48) | (process << 24) | (process + number)


def tables_of(database: Path) -> dict[str, str]:
    """The tables of a database by name, without comments and layout."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        return {name: _plain(sql) for name, sql in found}


def _plain(sql: str) -> str:
    return " ".join(re.sub(r"--.*", "", sql).replace("(", " ( ").replace(")", " ) ").split())


def make(database: Path, release: str) -> None:
    """Make an export without rows."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript((SCHEMAS / f"{release}.sql").read_text())


def fill(database: Path, table: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Add rows. Integers that a row leaves out, and that the table needs, are 1."""
    rows = list(rows)
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        needed = {name: 1 for _, name, _, not_null, _, _ in columns if not_null}
        for row in rows:
            full = {**needed, **row}
            marks = ", ".join("?" * len(full))
            connection.execute(
                f"INSERT INTO {table} ({', '.join(full)}) VALUES ({marks})", [*full.values()]
            )
