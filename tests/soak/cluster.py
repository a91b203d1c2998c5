"""Chaos on a Spark cluster: its parts, workers of Instep and the ledger are killed while documents change; then peace.

python -m tests.soak.cluster --seconds 300 --documents 2000 --seed 1 [--connect]
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from tests.e2e.cluster.hosts import SETTINGS, command
from tests.servers.connect import ConnectServer
from tests.servers.ledgers import postgres_ledger
from tests.servers.process import Server
from tests.servers.spark_cluster import SparkCluster, outside
from tests.soak.records import Records
from tests.soak.site import Site

TIMEOUT_SECONDS: Final = 300.0
#: Workers of Instep. Each has an executor of its own, unless they share a Connect server.
_WORKERS: Final = 2
#: Seconds between two actions, an executor takes five to be there again; and between two of these kinds, which take
#: longer: else nothing would ever be done.
_EVERY: Final = (4.0, 15.0)
_RARE_SECONDS: Final = {"worker": 60.0, "spark worker": 30.0, "master": 30.0, "connect": 60.0}
_STOPPED_SECONDS: Final = 3.0
#: Documents that change, go and come in a round.
_EDIT: Final = (300, 20, 20)
#: How a worker may end while its ledger is away.
_AWAY: Final = 75

#: Takes long enough to be hit.
_SLOW: Final = """
import time

def slowed(batches):
    for batch in batches:
        time.sleep(0.3)
        yield batch

def slow(rows):
    return rows.mapInArrow(slowed, rows.schema)
"""


@dataclass
class Toll:
    done: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    problems: list[str] = field(default_factory=list)


class Chaos:
    """Workers of Instep on a cluster, each of which is started again when it has ended, and what is done to them."""

    def __init__(
        self,
        site: Site,
        cluster: SparkCluster,
        ledger: Server,
        connect: ConnectServer | None,
        seed: int,
        report: Callable[[str], None],
    ) -> None:
        self._site = site
        self._cluster = cluster
        self._ledger = ledger
        self._connect = connect
        self._random = random.Random(seed)
        self._report = report
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._stopped: tuple[psutil.Process, float] | None = None
        self._next = time.monotonic()
        self._last: dict[str, float] = {}
        self.toll = Toll()

    def run(self, seconds: float) -> None:
        """Bad times for so long, in which a round may lie as a whole; then peace until it has ended, and for one more,
        after which all workers must end well.
        """
        deadline = time.monotonic() + seconds

        def act() -> None:
            if time.monotonic() < deadline:
                self._act()

        while time.monotonic() < deadline:
            self._round(act)
        self._let_go(at_once=True)
        self._ledger.revive()
        self._round(lambda: None)
        for each in self._workers.values():
            each.send_signal(signal.SIGTERM)
        for each in self._workers.values():
            if code := each.wait(TIMEOUT_SECONDS):
                self.toll.problems.append(f"a worker ended with {code} in peace")

    def kill(self) -> None:
        for each in self._workers.values():
            _kill(each)

    def log(self) -> Path:
        return self._site.folder / "workers.log"

    def _round(self, act: Callable[[], None]) -> None:
        """Some documents change, a want is made, and fulfilled; then the index is exact."""
        self.toll.rounds += 1
        if self.toll.rounds > 1:
            time.sleep(1.0)  # So that the want asks for more than the one before got.
            self._site.edit(*_EDIT)
            time.sleep(1.1)
        want = self._ask("want", "Document", "--fresh-within", "1s")["id"]
        began = time.monotonic()
        while (state := self._state(str(want), act)) not in ("Successful", "Failed", "Canceled"):
            if time.monotonic() - began > TIMEOUT_SECONDS + 60:
                raise AssertionError(f"round {self.toll.rounds}: the want is still {state}\n{self._last_words()}")
        wrong = self._site.wrong()
        when = f"round {self.toll.rounds}"
        self._report(f"{when}: {state}, {self._site.documents} documents, {wrong.total} wrong, {dict(self.toll.done)}")
        if state != "Successful" or wrong.total:
            self.toll.problems.append(f"{when}: the want is {state}; {wrong}")

    def _state(self, want: str, act: Callable[[], None]) -> str:
        """After a second in which things happen."""
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            self._look_after()
            act()
            time.sleep(0.1)
        return str(next(each["state"] for each in self._ask("wants", "--all") if each["id"] == want))

    def _ask(self, *words: str) -> Any:
        """A command, which is repeated while the ledger is away."""
        while True:
            line = [*command(self._site.project, *words), "--json"]
            done = subprocess.run(line, cwd="/", env=outside(), capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return json.loads(done.stdout)
            self._let_go()
            self._ledger.revive()

    def _look_after(self) -> None:
        self._let_go()
        for slot in range(_WORKERS):
            before = self._workers.get(slot)
            if before is not None and (code := before.poll()) is None:
                continue
            if before is not None and code not in (0, _AWAY, -signal.SIGKILL) and not self.toll.done["ledger"]:
                self.toll.problems.append(f"a worker ended with {code}\n{self._last_words()}")
            with self.log().open("ab") as log:
                self._workers[slot] = subprocess.Popen(
                    command(self._site.project, "worker"),
                    cwd="/",
                    env=outside(),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def _act(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._random.uniform(*_EVERY)
        acts = {"executor": 8, "pause": 2, "spark worker": 2, "master": 1, "worker": 2, "ledger": 1}
        acts |= {"connect": 1} if self._connect else {}
        (what,) = self._random.choices([*acts], [*acts.values()])
        drawn, now = self._random.random(), time.monotonic()
        if now < self._last.get(what, 0.0) + _RARE_SECONDS.get(what, 0.0):
            return
        self._last[what] = now
        if what == "ledger":
            self._ledger.restart()
        elif what == "connect":
            assert self._connect is not None
            self._connect.restart()
        elif what == "worker":
            _kill(self._workers[int(drawn * _WORKERS)])
        else:
            every = {"spark worker": self._cluster.workers, "master": self._cluster.masters}.get(
                what, self._cluster.executors
            )
            if not every:
                return
            victim = every[int(drawn * len(every))]
            if what == "pause":
                self._let_go(at_once=True)
                victim.suspend()
                self._stopped = victim, time.monotonic() + _STOPPED_SECONDS
            else:
                victim.kill()
        self.toll.done[what] += 1

    def _let_go(self, *, at_once: bool = False) -> None:
        """What stands still goes on when its time is over."""
        if self._stopped and (at_once or time.monotonic() > self._stopped[1]):
            with suppress(psutil.NoSuchProcess):
                self._stopped[0].resume()
            self._stopped = None

    def _last_words(self) -> str:
        return self.log().read_text(errors="replace")[-4_000:]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started, as when a host goes."""
    try:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    for each in family:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


def chaos(*, seconds: float, documents: int, seed: int, through_connect: bool, report: Callable[[str], None]) -> Toll:
    """Bad times for so long on a cluster of two workers, and what came of it."""
    database = postgres_ledger()
    database.server.revive()
    database.empty()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="instep-chaos-")))
        (folder / "recovery").mkdir()
        recovery = {
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(folder / "recovery"),
        }
        cluster = SparkCluster([], options=recovery, respawns=True)
        cluster.start()
        stack.callback(cluster.stop)
        connect = ConnectServer(cluster.master, {**SETTINGS, "spark.cores.max": "2"}) if through_connect else None
        if connect is not None:
            connect.start()
            stack.callback(connect.stop)
        site = Site(folder, database.url, seed)
        stack.callback(site.close)
        of_each = json.dumps({**SETTINGS, "spark.cores.max": "1"})
        where = f"remote: '{connect.address}'" if connect else f"master: '{cluster.master}', config: {of_each}"
        extra = f"engine: spark\nspark: {{{where}}}"
        site.prepare(documents, entity="slice_rows: 1000\nbuckets: 16\ntransform: slowly:slow", extra=extra)
        (site.project / "slowly.py").write_text(_SLOW)
        site.index.mkdir(parents=True)
        chaos = Chaos(site, cluster, database.server, connect, seed, report)
        try:
            chaos.run(seconds)
        finally:
            chaos.kill()
        records = Records(site.engine)
        if failures := records.failures():
            chaos.toll.problems.append(f"{failures} failures are listed")
        chaos.toll.problems += [f"job {each} has not ended" for each in records.open_jobs()]
        chaos.toll.problems += [f"the lease on {each} is still held" for each in records.held_leases()]
        chaos.toll.done["slices taken over"] = records.taken_over()
        return chaos.toll


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.cluster", description="Chaos on a Spark cluster.")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--documents", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--connect", action="store_true", help="through a Spark Connect server")
    given = parser.parse_args()
    seed = random.randrange(1 << 30) if given.seed is None else given.seed
    print(f"cluster{' through Connect' if given.connect else ''}, seed {seed}", flush=True)
    began = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    toll = chaos(
        seconds=given.seconds, documents=given.documents, seed=seed, through_connect=given.connect, report=report
    )
    print(f"{toll.rounds} rounds; " + ", ".join(f"{what}: {times}" for what, times in sorted(toll.done.items())))
    for problem in toll.problems:
        print(f"PROBLEM: {problem}")
    return int(bool(toll.problems))


if __name__ == "__main__":
    sys.exit(main())
