"""What a server tells the harness: a line of JSON for each thing that matters, and where it stands still."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from instep.domain.jobs import Phase
from instep.domain.waves import Stage
from instep.errors import Fenced, Transient, Unknown
from tests.doubles.through import through

#: A slice under the fence of one claim.
Held = tuple[str, int]

#: Where a server can be told to stand still, in the order in which a wave passes them: its rows are
#: staged; it was proved to hold its slices and the target's commit begins; the ledger's completion begins.
STAGED: Final = "staged"
COMMIT: Final = "commit"
COMPLETE: Final = "complete"
POINTS: Final = (STAGED, COMMIT, COMPLETE)


class LogProgress:
    """Each line is written at once and whole: SIGKILL takes none of them back."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, event: str, **facts: Any) -> None:
        main = threading.current_thread() is threading.main_thread()
        line = {"at": time.monotonic(), "event": event, "main": main, **facts}
        os.write(self._file, f"{json.dumps(line)}\n".encode())

    def say(self, entity: str, message: str) -> None:
        self.note("said", entity=entity, message=message)

    # The rest of `telemetry.progress.Progress`.

    def listing(self, entity: str, found: int) -> None: ...

    def begin(self, entity: str, total: int | None, unit: str) -> None: ...

    def advance(self, entity: str, units: int) -> None: ...

    def stage(self, entity: str, stage: Stage) -> None: ...

    def phase(self, entity: str, phase: Phase) -> None: ...

    def end(self, entity: str, *, well: bool = True) -> None: ...


class Ambush:
    """Stops this process by SIGSTOP at a point that the harness wrote into a file; it alone continues it."""

    def __init__(self, file: Path, log: LogProgress) -> None:
        self._file = file
        self._log = log
        #: Held during heartbeats: SQLite is locked for all while a transaction of a stopped process is open.
        self.heartbeat = threading.Lock()

    def passes(self, point: str, slices: Iterable[Held]) -> None:
        try:
            wanted = self._file.read_text()
        except FileNotFoundError:
            return
        if wanted != point:
            return
        self._file.unlink(missing_ok=True)
        with self.heartbeat:
            self._log.note("still", point=point, slices=sorted(slices))
            os.kill(os.getpid(), signal.SIGSTOP)


@dataclass(frozen=True)
class Watch:
    """Notes what a port refuses and what fails. `before` and `after` are called around the methods that they name, the
    latter with the result.
    """

    name: str
    log: LogProgress
    before: Mapping[str, Callable[..., None]]
    after: Mapping[str, Callable[..., None]]

    def call(self, method: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if method in self.before:
            self.before[method](*args, **kwargs)
        try:
            result = real(*args, **kwargs)
        except Fenced as error:
            self.log.note("refused", by=self.name, call=method, why=str(error))
            raise
        except (Transient, Unknown) as error:
            self.log.note("failed", by=self.name, call=method, why=str(error))
            raise
        if method in self.after:
            self.after[method](result, *args, **kwargs)
        return result


def watched_ledger(ledger: Any, log: LogProgress, ambush: Ambush) -> Any:
    def claimed(claims: Any, *_: Any, **__: Any) -> None:
        if claims:
            log.note("claimed", slices=_held(claims))

    def held(answer: bool, *_: Any, **__: Any) -> None:
        if not answer:
            log.note("refused", by="ledger", call="slices.holds", why="others have the slices")

    def completing(_part: Any, _worker: str, outcomes: Any, **__: Any) -> None:
        ambush.passes(COMPLETE, _held(outcomes))

    def completed(_: None, _part: Any, _worker: str, outcomes: Any, **__: Any) -> None:
        log.note("completed", slices=_held(outcomes))

    def registered(_: None, worker_id: str, **__: Any) -> None:
        log.note("worker", id=worker_id)

    watch = Watch(
        "ledger",
        log,
        {"slices.complete": completing},
        {
            "slices.claim": claimed,
            "slices.holds": held,
            "slices.complete": completed,
            "workers.register": registered,
        },
    )
    return through(ledger, watch.call)


def watched_target(target: Any, log: LogProgress, ambush: Ambush) -> Any:
    def committing(*_: Any, marks: Any, **__: Any) -> None:
        log.note("commit", slices=_held(marks))
        ambush.passes(COMMIT, _held(marks))

    def fenced(_: int, _physical: str, _epoch: int, marks: Any = (), **__: Any) -> None:
        if marks:
            log.note("fenced", slices=_held(marks))

    return through(target, Watch("target", log, {"commit": committing}, {"fence": fenced}).call)


def watched_engine(engine: Any, log: LogProgress, ambush: Ambush) -> Any:
    def staged(_: Any, wave: Any, *__: Any, **___: Any) -> None:
        ambush.passes(STAGED, _held(wave.slices))

    return through(engine, Watch("engine", log, {}, {"run": staged}).call)


def _held(slices: Iterable[Any]) -> list[Held]:
    return [(each.slice_id, each.fence) for each in slices]
