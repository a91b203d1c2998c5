"""Reading with Spark: errors in one line, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from instep.domain.texts import without
from instep.error_transport import explained
from instep.errors import InstepError, UserError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LIMIT = 500
_SECRET = re.compile(r"pass|pwd|secret|token|key|credential|url|auth|sas", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_PARAMETERS = re.compile(r"(?<=[^\s'\"])([?;&](?:[\w.-]+)=)[^\s'\"&;]*")
_NOT_FOUND = re.compile(r"data source:? '?([\w.$-]+)|ClassNotFoundException: ([\w.$]+)", re.IGNORECASE)
_NOISE = re.compile(r"^(?:An error occurred while calling .*|: )|(?:SQLSTATE: \w+)$")
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_JAVA = re.compile(r"^(?:[a-z][\w$]*\.)+(?=[A-Z][\w$]*(?:Exception|Error)\b)")

_JARS = "Name its jar under `spark: {jars: […]}`"
_BY_FORMAT = {
    "delta": "delta-spark, delta-storage and delta-kernel, in the versions for this Spark",
    "iceberg": "iceberg-spark-runtime, in the version for this Spark",
    "avro": "spark-avro, in the version of this Spark",
}
_NO_SUCH_TYPE = {
    "TIMESTAMP(NANOS": "Spark reads no nanoseconds here: write microseconds, as with coerce_timestamps='us' in pandas.",
    **dict.fromkeys(
        (
            "UNRECOGNIZED_SQL_TYPE",
            "PARQUET_TYPE_ILLEGAL",
            "PARQUET_TYPE_NOT",
            "UNSUPPORTED_TIME_TYPE",
            "DECIMAL_PRECISION_EXCEEDS",
        ),
        "Spark has no type for that column: write it as another one, such as text, or leave it out.",
    ),
}


@contextmanager
def told(where: str, options: Mapping[str, str]) -> Iterator[None]:
    """Whatever Spark says about the table becomes a `UserError`; what PySpark would log of it is in there."""
    from pyspark.logger import PySparkLogger

    # By PySpark's own class: it could not use one that was made as any other.
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [each.disabled for each in loggers]
    for each in loggers:
        each.disabled = True
    try:
        yield
    except InstepError:
        raise
    except Exception as error:
        found = explained(error)
        raise (found if isinstance(found, InstepError) else as_told(error, where, options)) from None
    finally:
        for each, disabled in zip(loggers, before, strict=True):
            each.disabled = disabled


def as_told(error: Exception, where: str, options: Mapping[str, str]) -> UserError:
    text = str(error)
    causes = _CAUSE.findall(text)
    first = without_secrets(_first_line(causes[-1] if causes else text), options)
    if "PATH_NOT_FOUND" in text or "Path does not exist" in text:
        return UserError(f"there is nothing at {where}", hint="Check the path of the source.")
    if "UNABLE_TO_INFER_SCHEMA" in text:
        return UserError("there are no files with columns", where=where, hint="Check path and format of the source.")
    if "No suitable driver" in text:
        return UserError(f"there is no JDBC driver for {where}", hint=f"{_JARS}: that of your database's driver.")
    if any(each in text for each in ("DATA_SOURCE_NOT_FOUND", "Failed to find", "ClassNotFoundException")):
        found = _NOT_FOUND.search(text)
        name = (found[1] or found[2] if found else "").removesuffix(".DefaultSource")
        return UserError(f"Spark has no {name or 'class for it'}", where=where, hint=f"{_JARS}{_artifact(name)}.")
    if "NoSuchMethodError" in text or "IncompatibleClassChangeError" in text or "NoClassDefFoundError" in text:
        return UserError(f"its jar does not fit this Spark: {first}", where=where, hint=f"{_JARS} that does.")
    hint = next((said for name, said in _NO_SUCH_TYPE.items() if name in text), None)
    return UserError(f"it cannot be read: {first}", where=where, hint=hint)


def _artifact(name: str) -> str:
    known = _BY_FORMAT.get(name.lower())
    return f": {known}" if known else ""


def _first_line(text: str) -> str:
    lines = [_NOISE.sub("", line).strip() for line in text.splitlines()]
    line = next((each for each in lines if each), "no reason given")
    return _JAVA.sub("", line)[:_LIMIT]


def without_secrets(text: str, options: Mapping[str, str]) -> str:
    text = without(text, *(value for key, value in options.items() if _SECRET.search(key)))
    return _PARAMETERS.sub(r"\1***", _USERINFO.sub("", text))


def over_source(session: SparkSession, sql: str, frame: DataFrame) -> DataFrame:
    """The rows that a query gives, in which the frame is called `source`.

    The name is one within this statement. (A temporary view would be seen, and replaced, by everything else that uses
    the session.)
    """
    query = f"WITH source AS (SELECT * FROM {{instep_source}}) SELECT * FROM (\n{statement(sql)}\n)"
    text = query.replace("{", "{{").replace("}", "}}").replace("{{instep_source}}", "{instep_source}", 1)
    return session.sql(text, instep_source=frame)


def statement(sql: str) -> str:
    """A statement without the `;` at its end: it becomes part of another one."""
    return sql.strip().rstrip(";").rstrip()
