"""The backfill of a queue in ClickHouse (chdb), beside one statement by hand that groups the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.queue_clickhouse import Matches, cpu
from instep.queues.engines.queue_engine import PendingStore
from instep.queues.key_ranges import key_ranges
from instep.queues.open import PARTS
from instep.system import SystemClock

_BARE = """INSERT INTO bare SELECT match_id, min(at), max(done) FROM (
SELECT match_id, start_time AS at, toUInt8(0) AS done FROM history WHERE match_mode IN ('Ranked', 'Unranked')
UNION ALL SELECT DISTINCT match_id, toDateTime(4294967295), toUInt8(1) FROM salts
UNION ALL SELECT DISTINCT match_id, toDateTime(4294967295), toUInt8(1) FROM players) GROUP BY match_id"""


@dataclass(frozen=True)
class Filling:
    """Of so many keys of the source; seconds of one and of the other, and of all cores together."""

    keys: int
    seconds: float
    cpu: float
    bare: float
    bare_cpu: float

    @property
    def rate(self) -> float:
        return self.keys / self.seconds

    def told(self) -> list[str]:
        rates = f"{self.rate:,.0f}", f"{self.keys / self.bare:,.0f}"
        each = (f"{one / self.keys * 1e6:.2f} s" for one in (self.cpu, self.bare_cpu))
        busy = f"{self.cpu / self.seconds:.2f}", f"{self.bare_cpu / self.bare:.2f}"
        return [f"{self.keys:,}", *rates, *each, *busy, f"{self.seconds / self.bare:.2f} x"]


TOLD = ["keys", "keys/s", "bare, keys/s", "CPU of a million", "bare", "cores", "bare", "time against bare"]


def filling(matches: Matches, store: PendingStore) -> Filling:
    """The bare statement first, so that both find what they read in memory."""
    columns = "(match_id UInt64, at DateTime, done UInt8)"
    matches.run(f"CREATE TABLE bare {columns} ENGINE = MergeTree ORDER BY match_id")
    bare = _taken(lambda: matches.run(_BARE))
    matches.run("DROP TABLE bare SYNC")
    keys = matches.asked("SELECT uniqExact(match_id) AS value FROM history")
    bounds = store.bounds()
    assert bounds is not None

    def fill() -> None:
        for _ in key_ranges(bounds, store.edge, store.backfill, PARTS["chdb"], SystemClock()):
            pass

    return Filling(keys, *_taken(fill), *bare)


def _taken(work: Callable[[], None]) -> tuple[float, float]:
    began, used = time.perf_counter(), cpu()
    work()
    return time.perf_counter() - began, cpu() - used
