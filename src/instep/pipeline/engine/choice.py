"""Choose the engine of a plan, with the reason that `instep plan` shows."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from instep.domain.planning import Measured, Pace, measured_pace

EngineName = Literal["inline", "spark"]

#: Work (rows, that is chunks) per second and core with the hashing embedder, and seconds to start.
#: Measured on 2 cores over 20,000 documents (230,000 chunks), side by side in one run: inline 13.3 s, Spark
#: in a warm session 12.5 s, of which about 5 s are the text index on either; Spark cold 18.9 s with its
#: class archive (see `home`) and 25.4 s without.
INLINE_WORK_PER_CORE = 18_000.0
SPARK_WORK_PER_CORE = 17_000.0
SPARK_START_SECONDS = 8.0
#: What a document takes besides its rows: as long as so many rows. Measured with 20,000 documents of one row each,
#: beside 40 of 1,500 rows each.
DOCUMENT_WORK = 2.0
#: Rows of a table (six columns of Parquet) that one core reads and writes. Measured on two cores, by the time of all
#: processes (2,000,000 rows, the run from plan to end): 330,000 for Lance, 215,000 for ClickHouse in this process.
TABLE_ROWS_PER_CORE = 250_000.0
#: Rows from which they are listed and compared on Spark; and where it has to be started for that.
SPARK_PLANS = 500_000
COLD_SPARK_PLANS = 2_000_000
#: Threads share one interpreter: past this many cores more of them do not help.
INLINE_CORES = 2
#: What we take a cluster to have when its master does not say.
CLUSTER_CORES = 16


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine for one partition's plan. Seconds are estimates, start included."""

    name: EngineName
    reason: str
    work: int
    inline_seconds: float
    spark_seconds: float
    pace: Pace

    @property
    def work_per_second(self) -> float:
        return round(self.pace.work_per_second, 1)

    @property
    def pace_from(self) -> str:
        return self.pace.origin


def pace_of(name: str, cores: int | None = None, *, tables: bool = False) -> Pace:
    """The assumed pace of an engine before its first wave (warm: its start is over by then). The work of tables is
    rows.
    """
    here = cores or _cores_here()
    if tables:
        return Pace(0.0, TABLE_ROWS_PER_CORE * here, here)
    if name == "inline":
        here = min(here, INLINE_CORES)
        return Pace(0.0, INLINE_WORK_PER_CORE * here, here)
    return Pace(0.0, SPARK_WORK_PER_CORE * here, here)


def choose_for_table(
    rows: int,
    *,
    warm: bool,
    cores: int,
    known: Sequence[Measured] = (),
    here: bool = False,
    configured: Literal["auto", "inline", "spark"] = "auto",
    installed: bool = True,
) -> EngineChoice:
    """The choice for a table, with its estimate: always Spark, but for one that can be read `here`, by one thread."""
    usual = {"inline": pace_of("inline", 1, tables=True), "spark": pace_of("spark", cores, tables=True)}
    paces = {name: measured_pace(each, name, usual, known) for name, each in usual.items()}
    inline = paces["inline"].seconds(rows) if here else 0.0
    spark = paces["spark"].seconds(rows) + (0.0 if warm else SPARK_START_SECONDS)

    def chosen(name: EngineName, reason: str) -> EngineChoice:
        return EngineChoice(name, reason, rows, round(inline, 1), round(spark, 1), paces[name])

    if not here:
        return chosen("spark", "tables always run on Spark")
    if configured != "auto":
        return chosen(configured, f"the project says `engine: {configured}`")
    if not installed:
        return chosen("inline", "PySpark is not installed")
    estimate = f"about {inline:.1f} s inline, about {spark:.1f} s on Spark"
    return chosen("inline" if inline < spark else "spark", estimate)


@cache
def _cores_here() -> int:
    return os.cpu_count() or 1  # Asked once: it reads a file.


def cores_of(master: str, remote: str | None = None) -> int:
    """Cores behind a Spark master: `local[n]` says, `local[*]` means this machine's."""
    if remote:
        return CLUSTER_CORES
    if master == "local":
        return 1
    match = re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master)
    if match is None:
        return CLUSTER_CORES
    return _cores_here() if match[1] == "*" else int(match[1])


def choose(
    configured: Literal["auto", "inline", "spark"],
    work: int,
    *,
    needs_spark: bool,
    warm: bool,
    cores: int,
    documents: int = 0,
    in_process: bool = False,
    slower: float = 1.0,
    known: Sequence[Measured] = (),
    installed: bool = True,
) -> EngineChoice:
    """Choose the engine of a wave. `warm`: a Spark session is there already (the user's own, or from an earlier
    entity). `in_process`: no other process can work with the target, which Spark's tasks are. `installed`: PySpark is.

    `cores` is what Spark has; threads here are bounded by this machine's. `slower`: how many times as long a row is
    believed to take as one of the hashing embedder. `known` are paces measured before, which count for more: what the
    `documents` take besides their rows is part of them.
    """
    hashing = {"inline": pace_of("inline"), "spark": pace_of("spark", cores)}
    usual = {name: replace(each, work_per_second=each.work_per_second / slower) for name, each in hashing.items()}
    paces = {name: measured_pace(each, name, usual, known) for name, each in usual.items()}
    extra = 0.0 if known else documents * DOCUMENT_WORK
    inline, spark = (paces[name].seconds(work) + extra / hashing[name].work_per_second for name in ("inline", "spark"))
    spark += 0.0 if warm else SPARK_START_SECONDS

    def chosen(name: EngineName, reason: str) -> EngineChoice:
        return EngineChoice(name, reason, work, round(inline, 1), round(spark, 1), paces[name])

    if in_process:
        return chosen("inline", "its target is in this process")
    if needs_spark:
        return chosen("spark", "its source or its transform is for Spark")
    if configured != "auto":
        return chosen(configured, f"the project says `engine: {configured}`")
    if warm:
        return chosen("spark", "a Spark session is there already")
    if not installed:
        return chosen("inline", "PySpark is not installed")
    estimate = f"about {inline:.1f} s inline, about {spark:.1f} s on Spark with its start"
    return chosen("inline", estimate) if inline < spark else chosen("spark", estimate)


def choose_planning(
    configured: Literal["auto", "inline", "spark"], rows: int, *, warm: bool, installed: bool = True
) -> tuple[EngineName, str]:
    """The place to list and compare so many rows, and the reason."""
    least = SPARK_PLANS if warm or configured == "spark" else COLD_SPARK_PLANS
    if configured == "inline":
        return "inline", "the project says `engine: inline`"
    if configured == "auto" and not warm and not installed:
        return "inline", "PySpark is not installed"
    why = f"about {rows:,} rows or files; from {least:,} on it is done on Spark"
    return ("spark" if rows >= least else "inline"), why
