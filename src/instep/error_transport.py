"""Classify errors by who should act, for the driver and for Spark's tasks, and carry them through Spark.

A document's own faults are kept where it is read, embedded and written, and never come here. An error that ends a whole
wave is either an `InstepError`, or becomes one here if it is known to be an outage or something that a user has to
mend: then no attempts are spent on it, and no document is named. The rest may be the fault of a slice.

Spark wraps what a Python task raises in a Java stack trace, as text. So a task writes its error into that text in a
form that the driver can find again, whatever Spark (or Connect) adds around it.
"""

from __future__ import annotations

import base64
import errno
import json
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from socket import gethostname
from typing import TYPE_CHECKING, Any

from instep import errors
from instep.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa


#: By the first part of a module's name. What is not here comes with Instep itself, or is the user's.
EXTRAS = {
    "httpx": "openai",
    "sentence_transformers": "sentence-transformers",
    "tokenizers": "static",
    "wordllama": "static",
    "fastembed": "fastembed",
    "safetensors": "static",
    "kreuzberg": "formats",
    "tree_sitter": "code",
    "s3fs": "s3",
    "aiohttp": "http",
    "psycopg": "postgres",
    "clickhouse_connect": "clickhouse",
    "chdb": "clickhouse",
    "pymysql": "mysql",
    "nats": "nats",
    "qdrant_client": "qdrant",
    "qdrant_edge": "qdrant",
    "pymilvus": "milvus",
    "opensearchpy": "opensearch",
    "fastapi": "serve",
    "prometheus_client": "serve",
    "uvicorn": "serve",
    "websockets": "serve",
    "opentelemetry": "traces",
    "pyspark": "spark",
    "pandas": "connect",
    "grpc": "connect",
    "grpc_status": "connect",
    "google": "connect",
    "zstandard": "connect",
}


def missing(error: ImportError, *, where: str = "") -> UserError:
    """The package to install for a library that could not be imported."""
    name = error.name or ""
    extra = EXTRAS.get(name.partition(".")[0])
    if not isinstance(error, ModuleNotFoundError):
        return UserError(
            f"the package {name or 'it needs'} does not work: {error}",
            where=where,
            hint="Install it again, in a version that fits.",
        )
    if extra is None:
        return UserError(
            f"the package {name} is not installed",
            where=where,
            hint="Install it in the Python that runs this, wherever that is.",
        )
    hint = f"Install it: pip install 'instep[{extra}]'"
    return UserError(f"the package {name} is not installed", where=where, hint=hint)


#: Connect cuts long messages; what has to survive is kept well below that.
_MESSAGE_LIMIT = 1_000
_MARK = re.compile(r"<instep:([A-Za-z0-9+/=]+)>")
_TRACE_LINE = re.compile(r"^(?:[A-Za-z_][\w]*\.)*([A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Warning)?): ?(.*)$")
_KINDS: dict[str, type[errors.InstepError]] = {
    "Away": errors.Away,
    "UpstreamMissing": errors.UpstreamMissing,
    "UserError": errors.UserError,
    "Transient": errors.Transient,
    "Fenced": errors.Fenced,
    "Conflict": errors.Conflict,
    "Overdrawn": errors.Overdrawn,
    "Unknown": errors.Unknown,
    "InstepError": errors.InstepError,
}

#: The machine's, whatever was being done.
_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE}

_LOST_TASK = re.compile(r"most recent failure: Lost task [^:]*: (.*)")
#: The host of an executor, as Spark knows it. A driver that runs its tasks itself is called `driver`.
_TASK_HOST = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor (?!driver\b)")
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_JAVA = re.compile(r"^(?:[a-z][\w$]*\.)+(?=[A-Z][\w$]*(?:Exception|Error)\b)")
#: How `errors.UpstreamMissing` begins in a traceback.
_ASKED = re.compile(r"UpstreamMissing: (?:\S+: )?(\S+) is needed, and not there")
_NO_NEWS = re.compile(r"^(?:An error occurred while calling .*|: |.*\b\w+Exception: ?)$")

#: Spark is not there any more, as it says itself: a server that has restarted knows nothing of a session.
_GONE = (
    "stopped SparkContext",
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "NO_ACTIVE_SESSION",
    "INVALID_HANDLE.SESSION_",
    "INVALID_HANDLE.OPERATION_",
    "All masters are unresponsive",
    "Application is removed",
)
#: What a task needs before it can run does not reach it. All of it is ours, or of the session: no document's.
_NOT_HANDED_OVER = re.compile(
    r"\bExecutor\.(?:\$anonfun\$)?updateDependencies|\bStream '[^']+' was not found|\binstep_code_[0-9a-f]{16}\.zip"
)
_GONE_CODES = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
_DETAILS = re.compile(r'details = "([^"]*)')

#: Python workers that cannot do anything: a pattern, whether it is looked for in what a task says or in all that Spark
#: does, and what is said of what it finds.
_WORKERS = [
    (
        re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'|ImportError: cannot import name '(\w+)'"),
        "task",
        "Spark's Python workers have no module '{}': they run another Python than this one",
    ),
    (
        re.compile(r"AttributeError: (?:Can't get attribute|module 'instep).*instep"),
        "task",
        "Spark's Python workers have another version of Instep: {}",
    ),
    (re.compile(r"Error from python worker:\s*(.+)"), "all", "Spark's Python workers do not start: {}"),
    (re.compile(r'Cannot run program "([^"]+)": error='), "all", "Spark cannot run '{}'"),
    (
        re.compile(r"PYTHON_VERSION_MISMATCH(?:.*?different version: ([\d.]+) )?"),
        "all",
        f"Spark's Python workers have another version of Python than this one, {sys.version_info[0]}."
        f"{sys.version_info[1]}: {{}}",
    ),
]
_WORKERS_HINT = (
    "Name a Python that all executors have, with what Instep needs: PYSPARK_PYTHON, or `spark.pyspark.python` under "
    "`spark: {config: …}`; or bring that along in an archive (`instep pack`)."
)
_JAVAS = [
    (
        "UnsupportedClassVersionError",
        "a jar needs a newer Java than the one that runs Spark",
        "Set JAVA_HOME to a newer Java.",
    ),
    (
        "java.io.IOException: No space left on device",
        "Spark has no space left for its own files",
        "Free some, or set `spark.local.dir` under `spark: {config: …}`.",
    ),
]


class SparkLost(errors.Transient):
    """Spark, or this session with it, is of no use any more: what is tried again needs another one."""


class TaskFailed(RuntimeError):
    """A task failed with an error that does not say who should act; the message is the error's own."""


class TaskError(Exception):
    """An error that a task raises to Spark, packed into one line."""

    def __init__(self, packed: str) -> None:
        super().__init__(packed)


def explained(error: Exception) -> Exception:
    """The error as one that says who should act, if that is known; else itself."""
    if isinstance(error, errors.InstepError):
        return error
    if isinstance(error, ImportError):
        return missing(error)
    if isinstance(error, ConnectionError | TimeoutError):
        return errors.Transient(f"{type(error).__name__}: {error}")
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        return errors.UserError(f"this machine does not let it work: {error}", hint="Fix that, then run again.")
    if _is_sparks(error):
        return _of_spark(error)
    return error


@contextmanager
def explaining() -> Iterator[None]:
    """Errors in here are raised as `explained` has them."""
    try:
        yield
    except Exception as error:
        found = explained(error)
        if found is error:
            raise
        raise found from error


def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; an error among them is raised as a `TaskError` that `unpacked` understands."""
    try:
        yield from batches
    except Exception as error:
        raise TaskError(pack(explained(error))) from error


def pack(error: BaseException) -> str:
    kind = next((kind.__name__ for kind in type(error).__mro__ if _KINDS.get(kind.__name__) is kind), None)
    value: dict[str, object] = {"kind": kind, "type": type(error).__name__, "host": gethostname()}
    if isinstance(error, errors.UserError):
        made_with = error.name if isinstance(error, errors.UpstreamMissing) else error.what
        value |= {"text": made_with[:_MESSAGE_LIMIT], "where": error.where, "hint": error.hint}
    else:
        value |= {"text": str(error)[:_MESSAGE_LIMIT]}
    return f"<instep:{base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()}>"


def unpacked(text: str, *, placed: bool = True) -> Exception:
    """The error behind what Spark says of a failed job; `placed`: with the host of the executor, if that is another."""
    found = _MARK.search(text)
    if found is None:
        return _asked(text) or _of_machine(text) or TaskFailed(_in_a_line(text))
    value = json.loads(zlib.decompress(base64.b64decode(found[1])))
    kind = _KINDS.get(value["kind"])
    if kind is None:
        return TaskFailed(f"{value['type']}: {value['text']}")
    place = f"the executor on {value['host']}" if placed and value["host"] != gethostname() else None
    if issubclass(kind, errors.UserError):
        where = ": ".join(filter(None, [place, value["where"]])) or None
        return kind(value["text"], where=where, hint=value["hint"])
    return kind(f"{value['text']} ({place})" if place and kind is errors.Transient else value["text"])


def _asked(text: str) -> errors.UpstreamMissing | None:
    """The partition that a function of a transform asks for, which Spark calls without us between; None if none."""
    found = _ASKED.match(_in_a_line(text))
    return errors.UpstreamMissing(found[1]) if found else None


def _is_sparks(error: Exception) -> bool:
    return any(kind.__module__.partition(".")[0] in ("pyspark", "py4j") for kind in type(error).__mro__)


def _of_spark(error: Exception) -> Exception:
    try:
        text = str(error)
    except Exception:  # A Java error is asked of the JVM, which may not be there any more.
        return SparkLost("Spark is out of reach: its JVM has ended")
    if not _MARK.search(text):
        if why := _gone(error, text):
            return SparkLost(f"Spark is out of reach: {why}")
        if "Traceback (most" not in text and _NOT_HANDED_OVER.search(text):
            return SparkLost(f"Spark cannot hand the project's own code to its tasks: {_in_a_line(text)}")
    return unpacked(text)


def _gone(error: Any, text: str) -> str | None:
    """The reason why Spark itself is gone, or None; what tasks say of themselves does not count."""
    asked = getattr(error, "getGrpcStatusCode", None) or getattr(error, "code", None)
    code = getattr(asked() if callable(asked) else None, "name", "")
    if code in _GONE_CODES:
        details = _DETAILS.search(text)
        said = details[1] if details else _in_a_line(text)
        return said.rpartition(": ")[2] if "last error: " in said else said
    if type(error).__name__ in ("Py4JNetworkError", "Py4JAuthenticationError"):
        return "its JVM has ended"
    return _in_a_line(text) if any(each in text.partition("Traceback (most")[0] for each in _GONE) else None


def _of_machine(text: str) -> errors.UserError | None:
    """The error that a person has to mend before any task can run, as Spark's text has it; else None."""
    said = _in_a_line(text)
    for pattern, of, what in _WORKERS:
        if found := pattern.search(said if of == "task" else text):
            named = next((each for each in found.groups() if each), "").strip()[:300]
            host = _TASK_HOST.search(text)
            place = f"the executor on {host[1]}" if host else None
            return errors.UserError(what.format(named or said), where=place, hint=_WORKERS_HINT)
    if "java.lang.OutOfMemoryError" in text:
        return out_of_memory()
    return next((errors.UserError(what, hint=hint) for mark, what, hint in _JAVAS if mark in text), None)


def out_of_memory() -> errors.UserError:
    return errors.UserError(
        "Spark's JVM ran out of memory",
        hint="Give it more: `spark.driver.memory` (on a cluster `spark.executor.memory`) under `spark: {config: …}`.",
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its kind if it has none."""
    said = str(error).strip()
    return said.splitlines()[0][:300] if said else type(error).__name__


def _in_a_line(text: str) -> str:
    """The last line of the Python traceback in a Spark error; else what Spark says of the task, its cause, or it."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    start = next((n for n, line in enumerate(lines) if "Traceback (most recent call" in line), len(lines))
    found = ""
    for line in lines[start + 1 :]:
        if line.startswith(("\tat ", " SQLSTATE", "JVM stacktrace")):
            break
        match = _TRACE_LINE.match(line)
        found = f"{match[1]}: {match[2]}" if match else found
    return (found or _java_line(text, lines))[:_MESSAGE_LIMIT]


def _java_line(text: str, lines: list[str]) -> str:
    tasks, causes = _LOST_TASK.findall(text), _CAUSE.findall(text)
    for line in [*tasks, *reversed(causes), *lines]:
        if not line.startswith("\tat ") and not _NO_NEWS.match(line):
            return _JAVA.sub("", line.strip())
    return lines[0].strip() if lines else "Spark gave no reason"
