"""A worker's registration in the ledger, with its heartbeat and proof of life."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import Literal

from instep.jobs.heartbeat import Heartbeat
from instep.planning.context import Context

Kind = Literal["run", "worker"]


class Registration:
    """One registration: heartbeats go to the ledger in the background, and a lock on this host proves that the process
    is alive.

    A worker that others have declared dead registers again, under a new id.
    """

    def __init__(self, context: Context, kind: Kind) -> None:
        self._context = context
        self.id = context.ids.new()
        self.heartbeat = Heartbeat(context.ledger, self.id, context.clock, context.timing)
        context.ledger.workers.register(self.id, kind=kind, host=socket.gethostname(), pid=os.getpid())
        self._proof, self._beats = ExitStack(), ExitStack()
        self._proof.callback(context.liveness.begin(self.id))
        self._beats.callback(
            context.background.every(context.timing.heartbeat / 1000, self.heartbeat.beat, f"heartbeat-{self.id[:8]}")
        )

    def silence(self) -> None:
        """Stop the heartbeats and renewals; the proof of life stays."""
        self._beats.close()

    def retire(self) -> None:
        """Remove the worker from the ledger, once it holds nothing any more."""
        self._context.ledger.workers.retire(self.id)
        self._context.liveness.forget(self.id)

    def bury(self) -> None:
        """Clean up after other workers have removed it from the ledger."""
        self.silence()
        self._context.liveness.forget(self.id)
        self.end()

    def end(self) -> None:
        """End the proof of life: the worker counts as dead, unless it was removed. May be called twice."""
        self.silence()
        self._proof.close()
