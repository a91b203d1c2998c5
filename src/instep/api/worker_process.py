"""The worker process that a server starts for requests: one at a time; it ends when it is idle."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio.to_thread

#: Seconds in which it has to release its slices.
_GRACE: Final = 30.0
#: Variables that it does not need.
_HIDDEN: Final = ("INSTEP_TOKEN",)

_log = logging.getLogger("instep.api")


@dataclass(frozen=True, slots=True)
class _Call:
    """Arguments of a worker."""

    entities: frozenset[str]
    threads: int | None

    def and_then(self, other: _Call) -> _Call:
        return _Call(self.entities | other.entities, other.threads or self.threads)


class OwnWorker:
    """`command` starts a worker; entities and options are added to it. None: this server starts none."""

    def __init__(self, command: Sequence[str] | None) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._next: _Call | None = None
        self._ended = False

    def start(self, entities: Iterable[str], *, threads: int | None) -> bool:
        """Have a worker look after these entities. One that runs may have looked already: when it has ended, another
        one is started. False if this server starts none.
        """
        call = _Call(frozenset(entities), threads)
        with self._lock:
            if self._command is None or self._ended:
                return False
            if self._process is None:
                self._begin(self._command, call)
            else:
                self._next = call if self._next is None else self._next.and_then(call)
        return True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stop the worker when the server ends; its slices are released."""
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(self._end)

    def _begin(self, command: Sequence[str], call: _Call) -> None:
        threads = ["--threads", str(call.threads)] if call.threads else []
        environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
        # In a session of its own: Ctrl-C is for the server, which stops it.
        process = subprocess.Popen(  # noqa: S603 - names of entities that were checked, behind our own command
            [*command, "--until-idle", *threads, "--", *sorted(call.entities)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        self._process = process
        threading.Thread(target=self._watch, args=(command, process), name="own-worker", daemon=True).start()

    def _watch(self, command: Sequence[str], process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        if code:
            _log.warning("the worker of this server ended with exit code %d", code)
        else:
            _log.info("the worker of this server has nothing left to do")
        with self._lock:
            self._process = None
            call, self._next = self._next, None
            if call is not None and not self._ended:
                try:
                    self._begin(command, call)
                except OSError as error:  # There is no process or no memory left.
                    _log.warning("no worker could be started: %s", error.strerror)

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
