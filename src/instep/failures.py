"""How an error in a Spark task comes home: as the same kind of error, with its own message.

Spark wraps what a Python task raises in a Java stack trace, as text. So a task writes its error
into that text in a form that the driver can find again, whatever Spark (or Connect) adds around it.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from instep import errors

if TYPE_CHECKING:
    import pyarrow as pa

#: Connect cuts long messages; what has to survive is kept well below that.
_MESSAGE_LIMIT = 1_000
_MARK = re.compile(r"<instep:([A-Za-z0-9+/=]+)>")
_TRACE_LINE = re.compile(r"^(?:[A-Za-z_][\w]*\.)*([A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Warning)?): ?(.*)$")
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(instep|lance|pyarrow)[.'\w]*")
_KINDS: dict[str, type[errors.InstepError]] = {
    "UserError": errors.UserError,
    "Transient": errors.Transient,
    "Fenced": errors.Fenced,
    "Conflict": errors.Conflict,
    "Unknown": errors.Unknown,
    "InstepError": errors.InstepError,
}


class TaskFailed(RuntimeError):
    """A task died of an error that says nothing about who should act; the message is the error's own."""


class TaskError(Exception):
    """What a task raises to Spark: an error packed into one line."""

    def __init__(self, packed: str) -> None:
        super().__init__(packed)


def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; an error among them is raised as a `TaskError` that `unpacked` understands."""
    try:
        yield from batches
    except Exception as error:
        raise TaskError(pack(error)) from error


def pack(error: BaseException) -> str:
    kind = next((kind.__name__ for kind in type(error).__mro__ if _KINDS.get(kind.__name__) is kind), None)
    value: dict[str, object] = {"kind": kind, "type": type(error).__name__}
    if isinstance(error, errors.UserError):
        value |= {"text": error.what[:_MESSAGE_LIMIT], "where": error.where, "hint": error.hint}
    else:
        value |= {"text": str(error)[:_MESSAGE_LIMIT]}
    return f"<instep:{base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()}>"


def unpacked(text: str) -> Exception:
    """The error behind what Spark says of a failed job."""
    found = _MARK.search(text)
    if found is None:
        said = _in_a_line(text)
        missing = _NO_MODULE.search(said)
        if missing:
            return errors.UserError(
                f"Spark's Python workers have no module {missing[1]!r}: they run another Python than this one",
                hint="Set PYSPARK_PYTHON to a Python that has Instep installed, on every machine.",
            )
        return TaskFailed(said)
    value = json.loads(zlib.decompress(base64.b64decode(found[1])))
    kind = _KINDS.get(value["kind"])
    if kind is None:
        return TaskFailed(f"{value['type']}: {value['text']}")
    if issubclass(kind, errors.UserError):
        return kind(value["text"], where=value["where"], hint=value["hint"])
    return kind(value["text"])


def _in_a_line(text: str) -> str:
    """The last line of the Python traceback in a Spark error, or else its first line."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    start = next((n for n, line in enumerate(lines) if "Traceback (most recent call" in line), len(lines))
    found = ""
    for line in lines[start + 1 :]:
        if line.startswith(("\tat ", " SQLSTATE", "JVM stacktrace")):
            break
        match = _TRACE_LINE.match(line)
        found = f"{match[1]}: {match[2]}" if match else found
    return (found or (lines[0].strip() if lines else "Spark gave no reason"))[:_MESSAGE_LIMIT]
