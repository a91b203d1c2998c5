"""How long things may take before somebody else steps in. All are milliseconds.

The seed's constants (distributed reindexing, "Timeouts and Limits"). They come in as a value, so
that tests with real processes can live faster; nothing but a test has a reason to change them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Timing:
    """`lease`: how long a lease holds unless renewed. `renew`, `heartbeat`: how often a worker says that
    it lives. `stale`: silence after which its slices go to others. `margin`: how long before its
    lease or heartbeat could run out a worker stops writing. `sweep`: how often every worker looks for
    the remains of others. `grace`: how long a stopping job waits for the slices in work. `orphan`:
    how long a job that nobody works on waits for a worker that can resume it, before it may be failed.
    `stagger`: over which time the second half of a new job's slices becomes claimable, if others work
    on the ledger too. `poll`: how often an idle worker looks for work. `rest`, `longest_rest`: how long what ended
    badly is left alone by who was not asked for it, after the first time and at most.
    """

    lease: int = 5 * 60_000
    renew: int = 60_000
    heartbeat: int = 30_000
    stale: int = 5 * 60_000
    margin: int = 15_000
    sweep: int = 2 * 60_000
    grace: int = 30_000
    orphan: int = 10 * 60_000
    stagger: int = 5_000
    poll: int = 500
    rest: int = 30_000
    longest_rest: int = 60 * 60_000

    def faster(self, factor: float) -> Timing:
        """The same proportions, `factor` times as fast."""
        return Timing(**{each.name: max(1, round(getattr(self, each.name) / factor)) for each in fields(self)})


TIMING = Timing()
