"""ClickHouse in this process (chdb). It allows one process per folder, and one folder per process.

So the engine is open only while it is used and a moment longer (opening takes some 50 ms, or 100 with
large tables), under a lock file of our own: another process waits for its turn, and gets it soon even if this one is
always at work. That it waits is seen by a second lock.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from instep.clickhouse.outdated_parts import remove_outdated
from instep.clickhouse.session import JSON, STAGED, WHOLE, explained, literal, plain, quoted
from instep.errors import Away, Transient, UserError

if TYPE_CHECKING:
    import pyarrow as pa

#: How long to wait for the engine while another process, or another folder in this one, has it.
TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.02

#: The engine stays open so long after its last use: as long as a small wave takes, which reads with Spark in that time.
#: If another process waits, it is given up at the first chance after so long a time.
_LINGER_SECONDS = 1.0
_TURN_SECONDS = 2.0

#: Of an engine that does not come to its end: outdated parts are removed after so many writes.
_MANY_WRITES = 100

#: Text comes as bytes. No machine code is made of what most statements compute for a few rows: what was asked three
#: times would wait tens of milliseconds for it.
_ALWAYS: dict[str, str | int] = {
    "output_format_arrow_string_as_string": 0,
    "compile_expressions": 0,
    "compile_aggregate_expressions": 0,
    "compile_sort_description": 0,
    **WHOLE,
    **JSON,
}

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0", "'": "\\'"})


@dataclass
class _Engine:
    """The one of this process: `folder` is open, and `users` work with it. `anchor` is the connection that keeps it
    open between them.
    """

    turn: threading.Condition = field(default_factory=threading.Condition)
    folder: Path | None = None
    users: int = 0
    lock: IO[bytes] | None = None
    anchor: Any = None
    #: Idle connections, by what was SET: to open one takes as long as a short answer.
    idle: dict[str, list[Any]] = field(default_factory=dict)
    since: float = 0.0
    uses: int = 0
    watched: bool = False
    #: How often it was written to since outdated parts were removed: what only reads leaves none behind.
    writes: int = 0

    def open(self, folder: Path, deadline: float) -> None:
        self.lock = _locked(folder, deadline)
        try:
            self.anchor = _connect(folder)
        except BaseException:
            self.lock.close()
            raise
        self.folder, self.since, self.writes = folder, time.monotonic(), 0

    def close(self) -> None:
        if self.folder is not None:
            assert self.lock is not None
            for connection in chain.from_iterable(self.idle.values()):
                connection.close()
            self.idle.clear()
            if self.writes:
                self.tidy()
            self.anchor.close()
            self.lock.close()
            self.lock = self.folder = self.anchor = None
            self.turn.notify_all()

    def tidy(self) -> None:
        self.writes = 0
        # Whatever fails, it is tried again after the next writes.
        with contextlib.suppress(Exception):
            remove_outdated(self.anchor)

    def watch(self) -> None:
        """Close it once it was not used for a while. One thread at a time does so."""
        self.watched = True
        seen = self.uses

        def look() -> None:
            with self.turn:
                self.watched = False
                if self.folder is not None and not self.users:
                    if self.uses == seen:
                        self.close()
                    else:
                        self.watch()

        timer = threading.Timer(_LINGER_SECONDS, look)
        timer.daemon = True
        timer.start()


_ENGINE = _Engine()
#: Held during changes that others decide by; across processes the engine's own lock does it.
_WRITING = threading.RLock()


@contextlib.contextmanager
def session(folder: Path, *, alone: bool, settings: Mapping[str, str | int] | None = None) -> Iterator[EmbeddedSession]:
    """`alone`: no other such session runs at the same time. All of it runs under the `settings`: said once
    for many sessions, where those of `under` are read again with each statement.
    """
    with _WRITING if alone else contextlib.nullcontext():
        _enter(folder)
        try:
            with _connection(folder, _said(_ALWAYS | dict(settings or {}))) as connection:
                yield EmbeddedSession(connection, folder)
        finally:
            _leave()


@contextlib.contextmanager
def _connection(folder: Path, settings: str) -> Iterator[Any]:
    """Used again by the next, unless something failed: its state is unknown then."""
    with _ENGINE.turn:
        idle = _ENGINE.idle.setdefault(settings, [])
        connection = idle.pop() if idle else None
    fresh = connection is None
    connection = connection or _connect(folder)
    try:
        if fresh:
            connection.query(f"SET {settings}")
        yield connection
    except BaseException:
        connection.close()
        raise
    with _ENGINE.turn:
        _ENGINE.idle.setdefault(settings, []).append(connection)


def _connect(folder: Path) -> Any:
    try:
        from chdb.state.sqlitelike import connect
    except ImportError:
        raise UserError(
            "ClickHouse in this process needs chdb", where=str(folder), hint="pip install 'instep[clickhouse]'"
        ) from None
    try:
        return connect(str(_data(folder)))
    except RuntimeError as error:
        raise Away(
            f"the folder cannot be opened: {error}",
            where=str(folder),
            hint="Only one process can have it open: end other programs that use it through chdb.",
        ) from None


def _data(folder: Path) -> Path:
    """A folder that chdb was given by another program is itself what is opened; ours has a lock beside it."""
    return folder if (folder / "metadata").is_dir() else folder / "clickhouse"


def _enter(folder: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with _ENGINE.turn:
        while _ENGINE.users and _ENGINE.folder != folder:
            if not _ENGINE.turn.wait(max(0.0, deadline - time.monotonic())):
                raise Transient(
                    f"{folder}: chdb opens one folder at a time, and this process has {_ENGINE.folder} open"
                )
        if _ENGINE.folder != folder:
            _ENGINE.close()
            # Others of this process wait here too: nothing can be done before it is open.
            _ENGINE.open(folder, deadline)
        _ENGINE.users += 1
        _ENGINE.uses += 1


def _locked(folder: Path, deadline: float) -> IO[bytes]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "engine.lock").open("ab")
    except OSError as error:
        raise UserError(
            f"the folder cannot be written: {error.strerror}",
            where=str(folder),
            hint="ClickHouse works in a folder of its own.",
        ) from None
    if _lock(file):
        return file
    with _waiting(folder) as waiting:
        fcntl.flock(waiting, fcntl.LOCK_SH)
        while not _lock(file):
            if time.monotonic() > deadline:
                file.close()
                raise Away(
                    "another process has the folder open",
                    where=str(folder),
                    hint="ClickHouse in a process (chdb) is for one process at a time; several need a server.",
                )
            time.sleep(_POLL_SECONDS)
    return file


def _lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _waiting(folder: Path) -> IO[bytes]:
    """Open the file on which every process that waits for the engine holds a shared lock."""
    return (folder / "engine.waiting").open("ab")


def _awaited(folder: Path) -> bool:
    """Whether another process waits for the engine."""
    with _waiting(folder) as waiting:
        return not _lock(waiting)


def _leave() -> None:
    with _ENGINE.turn:
        _ENGINE.users -= 1
        if _ENGINE.users:
            return
        _ENGINE.turn.notify_all()
        assert _ENGINE.folder is not None
        if time.monotonic() - _ENGINE.since > _TURN_SECONDS and _awaited(_ENGINE.folder):
            _ENGINE.close()
            return
        if _ENGINE.writes > _MANY_WRITES:
            _ENGINE.tidy()
        if not _ENGINE.watched:
            _ENGINE.watch()


@atexit.register
def _end() -> None:
    with _ENGINE.turn:
        if not _ENGINE.users:
            _ENGINE.close()


class EmbeddedSession:
    """See `Session`."""

    room = 10_000_000

    def __init__(self, connection: Any, folder: Path, settings: str = "") -> None:
        self._connection = connection
        self._folder = folder
        self._settings = settings

    def under(self, settings: Mapping[str, str | int]) -> EmbeddedSession:
        return EmbeddedSession(self._connection, self._folder, _said(settings))

    def command(self, sql: str, **parameters: Any) -> None:
        _ENGINE.writes += 1
        self._query(f"{sql} SETTINGS {self._settings}" if self._settings else sql, parameters)

    def arrow(self, sql: str, **parameters: Any) -> pa.Table:
        import pyarrow as pa

        sql += f" SETTINGS {self._settings}" if self._settings else ""
        # Without the footer that a file has: short answers are quicker.
        answer = self._query(sql, parameters, "ArrowStream").bytes()
        return pa.ipc.open_stream(pa.py_buffer(answer)).read_all()

    def spool(self, sql: str, file: IO[bytes], *, block_rows: int, **parameters: Any) -> None:
        sql += f" SETTINGS max_block_size = {block_rows:d}"
        values = _all_bound(parameters)
        with self._explained(), contextlib.closing(self._connection.send_query(sql, "ArrowStream", values)) as chunks:
            # Every chunk is a stream of its own.
            for chunk in chunks:
                file.write(chunk.bytes())

    def insert(self, table: str, rows: pa.Table) -> None:
        import pyarrow as pa

        _ENGINE.writes += 1
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows.combine_chunks())
        columns = ", ".join(quoted(name) for name in rows.column_names)
        try:
            with self._connection.send_insert(f"INSERT INTO {table} ({columns})", "ArrowStream") as inserter:
                inserter.append(sink.getvalue().to_pybytes())
                inserter.finish()
        except RuntimeError as error:
            raise explained(str(error), str(self._folder)) from None

    def load(self, sql: str, structure: str, paths: Sequence[str], **parameters: Any) -> None:
        files = [f"file({literal(path)}, 'ArrowStream', {literal(structure)})" for path in paths]
        _ENGINE.writes += 1
        rows = " UNION ALL ".join(f"SELECT * FROM {each}" for each in files)  # noqa: S608 - what is in there is quoted
        self._query(sql.replace(STAGED, f"({rows})"), parameters)

    def _query(self, sql: str, parameters: dict[str, Any], form: str = "Arrow") -> Any:
        with self._explained():
            return self._connection.query(sql, form, params=_all_bound(parameters))

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        from chdb import ChdbError

        try:
            yield
        except (ChdbError, RuntimeError) as error:
            raise explained(str(error), str(self._folder)) from None


def _said(settings: Mapping[str, str | int]) -> str:
    return ", ".join(
        f"{name} = {value if isinstance(value, int) else literal(value)}" for name, value in settings.items()
    )


def _all_bound(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: _bound(each) for name, each in parameters.items()}


def _bound(value: Any) -> Any:
    """chdb takes text as ClickHouse would write it into a tab-separated file."""
    value = plain(value)
    if isinstance(value, str):
        return value.translate(_ESCAPES)
    if isinstance(value, list | tuple):
        members = [f"'{each.translate(_ESCAPES)}'" if isinstance(each, str) else str(each) for each in value]
        return f"[{', '.join(members)}]"
    return value if value is not None else "\\N"
