"""PySpark is an extra: Instep does without it where all work is done in one process."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from instep.errors import UserError


@cache
def pyspark_installed() -> bool:
    """Whether this Python has PySpark, from `instep[spark]` or a platform that brings its own."""
    return find_spec("pyspark") is not None


def demand_pyspark(*, inline: bool = False) -> None:
    """Raises `UserError` if PySpark is not installed. `inline`: that is said already, or would not help."""
    if not pyspark_installed():
        other = "" if inline else " (or, for documents, say `engine: inline`)"
        raise UserError(
            "this needs Spark, and PySpark is not installed", hint=f"Run: pip install 'instep[spark]'{other}."
        )
