"""The soak: jobs one after another on servers that are killed and stopped all the time; then peace."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tests.servers.process import Server
from tests.soak.fleet import TIMEOUT_SECONDS, Event, Fleet, ServerProcess, fleet
from tests.soak.records import Records
from tests.soak.site import Difference, Site
from tests.soak.toll import Toll
from tests.soak.verdict import Verdict, judge
from tests.soak.witness import POINTS

#: How much faster than in production all times pass: the lease lasts 3 s then.
FASTER = 100.0
SERVERS = 3
#: Seconds between two actions of the murderer.
KILL_EVERY = (0.5, 5.0)
PAUSE_SHARE = 0.15
#: A pause lasts so many leases.
PAUSE_LEASES = (1.1, 2.0)
#: Share of the actions that hit the ledger's server, if it has one, and how many leases it is away then.
OUTAGE_SHARE = 0.04
OUTAGE_LEASES = (0.1, 1.5)
#: Seconds between two ambushes.
AMBUSH_EVERY = (1.0, 5.0)
#: Documents that change, go and come between two jobs: several in each slice, which a few kills cannot
#: make fail one by one.
EDIT = (300, 20, 20)
#: How a run may end in bad times: it was told of, and the next one resumes (EX_TEMPFAIL).
AWAY = 75


class Ambusher:
    """Makes sure that what must be refused happens: has a server stand still at a point of a wave, waits until
    others have its slices, lets it go on, and waits until it was refused. Then the next point.
    """

    def __init__(self, rng: random.Random, servers: Fleet) -> None:
        self._rng = rng
        self._servers = servers
        self._points = [*POINTS]
        self._next = time.monotonic()
        self._victim: ServerProcess | None = None
        self._still: Event | None = None
        self._freed = False
        self._began = 0.0
        self.sprung: Counter[str] = Counter()

    @property
    def protected(self) -> ServerProcess | None:
        """The servers that must not be killed or stopped now."""
        return self._victim

    @property
    def complete(self) -> bool:
        """Every point at least once."""
        return all(self.sprung[point] for point in POINTS)

    def step(self, *, begin: bool) -> None:
        victim = self._victim
        if victim is None:
            if begin and time.monotonic() >= self._next:
                self._begin()
        elif victim.ended:
            self._end()  # A run that was done before it could be caught.
        elif self._still is None:
            self._still = next(iter(victim.named("still", after=self._began)), None)
        elif not self._freed:
            if _taken_over(self._servers, victim, self._still):
                self._free(victim)
        elif victim.named("refused", after=self._still.at):
            self.sprung[self._points[0]] += 1
            self._points.append(self._points.pop(0))
            self._end()

    def leave(self) -> None:
        """End the chaos: no server is caught any more; those paused already are resumed as usual."""
        if self._victim is not None:
            self._victim.call_off()

    @property
    def at_work(self) -> bool:
        return self._still is not None

    def _begin(self) -> None:
        """Slot 0 is for the run that the source waits for; any other may stand still."""
        waiting = [each for each in self._servers.servers.values() if each.slot and not each.ended and not each.stopped]
        if waiting:
            self._began = time.monotonic()
            self._victim = self._rng.choice(waiting)
            self._victim.ambush(self._points[0])

    def _free(self, victim: ServerProcess) -> None:
        if victim.stands_still():
            victim.resume()
            self._freed = True

    def _end(self) -> None:
        self._victim = self._still = None
        self._freed = False
        self._next = time.monotonic() + self._rng.uniform(*AMBUSH_EVERY)


def _taken_over(servers: Fleet, victim: ServerProcess, still: Event) -> bool:
    """Whether another server has shown the target a higher fence for one of these slices."""
    fences = dict(still.slices)
    return any(
        fence > fences.get(slice_id, fence)
        for server in (*servers.past, *servers.servers.values())
        if server is not victim
        for event in server.events
        if event.name == "fenced" and event.at > still.at
        for slice_id, fence in event.slices
    )


class Soak:
    """Slot 0 always has a run: when it is done, the index is compared and the source edited. The others are
    workers, now and then another run.
    """

    def __init__(
        self, site: Site, servers: Fleet, seed: int, *, ledger: Server | None, report: Callable[[str], None]
    ) -> None:
        self._site = site
        self._ledger = ledger
        self._servers = servers
        self._rng = random.Random(seed)
        self._roles = random.Random(seed + 2)
        self._report = report
        self._ambusher = Ambusher(random.Random(seed + 1), servers)
        self._resume_at: dict[int, float] = {}
        self._next_action = time.monotonic() + self._rng.uniform(*KILL_EVERY)
        self._back_at: float | None = None
        self._runs = 0
        self._reader = ThreadPoolExecutor(1)
        self._comparison: Future[Difference] | None = None
        self._peaceful = False
        self.toll = Toll()

    def run(self, seconds: float) -> None:
        began = time.monotonic()
        for slot in range(SERVERS):
            self._start(slot)
        while time.monotonic() - began < seconds or not self._ambusher.complete:
            self._servers.read()
            self._look_after()
            self._murder()
            self._ambusher.step(begin=True)
            if time.monotonic() - began > seconds + TIMEOUT_SECONDS:
                raise AssertionError(f"caught only {dict(self._ambusher.sprung)} in {time.monotonic() - began:.0f} s")
            time.sleep(0.02)
        self._peace()

    # In bad times.

    def _start(self, slot: int, role: str | None = None) -> None:
        drawn = "run" if slot == 0 or self._roles.random() < 0.25 else "worker"
        self._servers.start(slot, role or drawn)
        self.toll.starts += 1

    def _look_after(self, role: str | None = None) -> None:
        """Who ended is started again; a run that was done first has its work looked at."""
        for slot, server in list(self._servers.servers.items()):
            if not server.ended:
                continue
            if not server.killed and not server.seen:
                server.read()
                self._ended(server)
                server.seen = True
            if slot or self._is_compared():
                self._start(slot, role)

    def _ended(self, server: ServerProcess) -> None:
        code = server.process.returncode
        if code == AWAY or (self.toll.outages and _found_no_ledger(server)):
            self.toll.gave_up += 1
        elif code != 0:
            self.toll.problems.append(f"server {server.name} ({server.role}) ended with {code}: {server.last_words()}")
        elif server.slot == 0:
            self._runs += 1
            self._comparison = self._reader.submit(self._site.wrong)

    def _is_compared(self) -> bool:
        """The others are hit as usual; the source changes only after it."""
        if self._comparison is None:
            return True
        if not self._comparison.done():
            return False
        wrong, self._comparison = self._comparison.result(), None
        when = f"after run {self._runs}"
        self._report(f"{when}: {self._site.documents} documents, {wrong.total} rows wrong, {self.toll.kills} kills")
        if wrong.total:
            self.toll.problems.append(f"{when}: {wrong}")
        if not self._peaceful:
            self._site.edit(*EDIT)
        return True

    def _murder(self) -> None:
        now = time.monotonic()
        self._let_go(now)
        if now < self._next_action:
            return
        # Drawn whether they can be done or not: the same seed draws the same actions.
        rng = self._rng
        self._next_action = now + rng.uniform(*KILL_EVERY)
        first, kind = rng.randrange(SERVERS), rng.random()
        pause, outage = rng.uniform(*PAUSE_LEASES), rng.uniform(*OUTAGE_LEASES)
        if kind >= 1 - OUTAGE_SHARE and self._ledger and self._back_at is None:
            self._ledger.kill()
            self._back_at = now + outage * self._servers.timing.lease / 1000
            self.toll.outages += 1
            return
        living = [self._servers.servers[(first + more) % SERVERS] for more in range(2)]
        victim = next((each for each in living if self._may_be_hit(each)), None)
        if victim is None:
            return
        if kind < PAUSE_SHARE:
            victim.stop()
            self._resume_at[victim.slot] = now + pause * self._servers.timing.lease / 1000
            self.toll.pauses += 1
        else:
            victim.kill()
            self.toll.kills += 1

    def _may_be_hit(self, server: ServerProcess) -> bool:
        return not (server.ended or server.stopped or server is self._ambusher.protected)

    def _let_go(self, now: float) -> None:
        """Whose time is over goes on."""
        for slot, due in list(self._resume_at.items()):
            if now >= due:
                del self._resume_at[slot]
                self._servers.servers[slot].resume()
        if self._ledger and self._back_at is not None and now >= self._back_at:
            self._back_at = None
            self._ledger.restart()

    # In peace.

    def _peace(self) -> None:
        """No more chaos: all servers must end."""
        self._let_go(float("inf"))
        self._ambusher.leave()
        self._peaceful = True
        runs, deadline = self._runs, time.monotonic() + TIMEOUT_SECONDS
        while self._runs == runs or self._comparison or self._ambusher.at_work or self._remains():
            self._servers.read()
            self._look_after(None if self._runs == runs else "worker")
            self._ambusher.step(begin=False)
            if time.monotonic() > deadline:
                raise AssertionError(f"no end in {TIMEOUT_SECONDS:.0f} s of peace:\n{self._servers.last_words()}")
            time.sleep(0.05)
        self._servers.end()

    def _remains(self) -> bool:
        """Whether the ledger still has open jobs, or workers that do not live."""
        records = Records(self._site.engine)
        return bool(records.open_jobs()) or not records.workers() <= self._servers.workers()


def _found_no_ledger(server: ServerProcess) -> bool:
    """It reported that, and ended: its starter has to start it again."""
    said = [event.facts for event in server.named("ended")]
    away = ("cannot be reached", "was lost")
    return any(each["kind"] in ("Transient", "Unknown") or any(text in each["why"] for text in away) for each in said)


def soak(
    site: Site,
    *,
    seconds: float,
    documents: int,
    seed: int,
    ledger: Server | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Bad times for so long, and what came of it. `ledger` is the server that has the ledger, to be hit too."""
    site.prepare(documents)
    with fleet(site, faster=FASTER) as servers:
        began = time.monotonic()
        run = Soak(site, servers, seed, ledger=ledger, report=report)
        run.run(seconds)
        last = servers.start(0, "run")
        servers.wait(lambda: last.ended, "one more run")
        return judge(site, servers, run.toll, seconds=time.monotonic() - began)
