"""Servers as processes: started, killed, stopped, continued, and what their diaries say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.soak.server import AMBUSH, timing_of
from tests.soak.site import Site
from tests.soak.witness import Held

REPOSITORY = Path(__file__).parents[2]
#: Nothing waits this long unless it is broken; a busy machine must not fail a test.
TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Event:
    """A line of a log. `at` is monotonic seconds, which are the same for all processes of a machine."""

    server: str
    slot: int
    at: float
    name: str
    facts: dict[str, Any]

    @property
    def slices(self) -> set[Held]:
        return {(slice_id, fence) for slice_id, fence in self.facts.get("slices", ())}


@dataclass
class ServerProcess:
    """One life of a server. Its slot is its place in the fleet, which the next one takes after it."""

    name: str
    slot: int
    role: str
    home: Path
    process: subprocess.Popen[bytes]
    stopped: bool = False
    killed: bool = False
    seen: bool = False
    events: list[Event] = field(default_factory=list)
    _read: int = 0

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def ready(self) -> bool:
        """It can be ended by Ctrl-C, and will leave nothing behind."""
        if self.role == "worker":
            return any("is ready for jobs" in event.facts["message"] for event in self.named("said"))
        return bool(self.named("ready"))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.stopped = True

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.stopped = False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.killed = True

    def ambush(self, point: str) -> None:
        """Tell it to stand still at this point of its next wave."""
        draft = self.home / f"{AMBUSH}.draft"
        draft.write_text(point)
        draft.replace(self.home / AMBUSH)

    def call_off(self) -> None:
        """It need not stand still after all (but may: it may have been just about to)."""
        (self.home / AMBUSH).unlink(missing_ok=True)

    def named(self, name: str, *, after: float = 0.0) -> list[Event]:
        """Its events of this name, those after a moment (monotonic)."""
        return [event for event in self.events if event.name == name and event.at > after]

    def stands_still(self) -> bool:
        """In an ambush, or stopped by us."""
        return not self.ended and psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED

    def line(self) -> None:
        """One more run, for a server whose role is `runs`."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"run\n")
        self.process.stdin.flush()

    def last_words(self) -> str:
        """Its log's end, and what it printed (tracebacks)."""
        lines = [f"{event.at:.2f} {event.name} {str(event.facts)[:300]}" for event in self.events[-8:]]
        return "\n".join([*lines, (self.home / "output").read_text(errors="replace")[-4_000:]])

    def read(self) -> list[Event]:
        """What is new in its log."""
        log = self.home / "log"
        if not log.exists():
            return []
        with log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        new = []
        for line in whole.splitlines():
            facts = json.loads(line)
            new.append(Event(self.name, self.slot, facts.pop("at"), facts.pop("event"), facts))
        self.events += new
        return new


class Fleet:
    """All servers of one site that are or were."""

    def __init__(self, site: Site, *, faster: float, claim: int) -> None:
        self._site = site
        self._faster = faster
        self._claim = claim
        self.timing = timing_of(faster)
        self.servers: dict[int, ServerProcess] = {}
        self.past: list[ServerProcess] = []
        self._started = 0

    def start(self, slot: int, role: str, *, ambush: str | None = None) -> ServerProcess:
        """In an empty slot, or after the one that has ended there. `ambush`: where it is to stand still."""
        if slot in self.servers:
            self._retire(slot)
        self._started += 1
        name = f"{slot}-{self._started:04d}"
        home = self._site.folder / "servers" / name
        home.mkdir(parents=True)
        if ambush:
            (home / AMBUSH).write_text(ambush)
        command: list[str | Path] = [
            *(sys.executable, "-m", "tests.soak.server", self._site.project, home),
            *("--role", role, "--faster", str(self._faster), "--claim", str(self._claim)),
        ]
        with (home / "output").open("wb") as output:
            process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )
        self.servers[slot] = ServerProcess(name, slot, role, home, process)
        return self.servers[slot]

    def read(self) -> list[Event]:
        """What is new, in the order in which it happened."""
        new = [event for server in self.servers.values() for event in server.read()]
        return sorted(new, key=lambda event: event.at)

    @property
    def events(self) -> list[Event]:
        every = [event for server in (*self.past, *self.servers.values()) for event in server.events]
        return sorted(every, key=lambda event: event.at)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Until it holds, and with all read that was written before; no server may fail until then."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            self.read()
            if condition():
                self.read()  # A server that has just ended may have written more.
                return
            for server in self.servers.values():
                if code := not server.killed and server.process.poll():
                    words = server.last_words()
                    raise AssertionError(f"server {server.name} ended with {code} while waiting for {what}:\n{words}")
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain for {what}; servers:\n{self.last_words()}")
            time.sleep(0.02)

    def wait_until_still(self, *servers: ServerProcess) -> None:
        """Each of them stands where its ambush was."""
        self.wait(lambda: all(each.named("still") and each.stands_still() for each in servers), "ambushes")

    def workers(self) -> set[str]:
        """Ids under which those that live have registered."""
        return {
            event.facts["id"]
            for server in self.servers.values()
            if not server.ended
            for event in server.events
            if event.name == "worker"
        }

    def end(self) -> None:
        """All of them by Ctrl-C, once they can be: that is how a worker ends. Runs end by themselves."""
        living = [server for server in self.servers.values() if server.role != "run"]
        self.wait(lambda: all(server.ended or server.ready for server in living), "all servers being ready")
        for server in living:
            if not server.ended:
                server.process.send_signal(signal.SIGINT)
                server.resume()
        self.wait(lambda: all(server.ended for server in self.servers.values()), "all servers to end")

    def kill(self) -> None:
        for server in self.servers.values():
            server.kill()

    def _retire(self, slot: int) -> None:
        before = self.servers.pop(slot)
        assert before.ended, "a slot has one server at a time"
        before.read()
        if before.process.stdin is not None:
            before.process.stdin.close()
        self.past.append(before)

    def last_words(self) -> str:
        return "\n".join(
            f"{each.name} {each.role} {'ended' if each.ended else 'lives'}: {each.last_words()}"
            for each in self.servers.values()
        )


@contextmanager
def fleet(site: Site, *, faster: float, claim: int = 2) -> Iterator[Fleet]:
    """Whatever happens, no server is left behind."""
    servers = Fleet(site, faster=faster, claim=claim)
    try:
        yield servers
    finally:
        servers.kill()
        for each in (*servers.past, *servers.servers.values()):
            if each.process.stdin is not None:
                each.process.stdin.close()
        site.close()
