"""PySpark is an extra: Instep does without it where all work is done in one process."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from instep.errors import UserError


@cache
def pyspark_installed() -> bool:
    """Whether this Python has PySpark, from `instep[spark]` or a platform that brings its own."""
    return find_spec("pyspark") is not None


def demand_pyspark() -> None:
    """Raises `UserError` if PySpark is not installed."""
    if not pyspark_installed():
        raise UserError(
            "this needs Spark, and PySpark is not installed",
            hint="Run: pip install 'instep[spark]' (or, for documents, say `engine: inline`).",
        )
