"""A worker's name in the ledger."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import Literal

from instep.jobs.heartbeat import Heartbeat
from instep.planning.context import Context

Kind = Literal["run", "worker"]


class Registration:
    """Kept alive in the background: its heart beats in the ledger, and this process proves on its host that it lives.

    Whoever begins anew after others have buried it has another one, under a new id.
    """

    def __init__(self, context: Context, kind: Kind) -> None:
        self._context = context
        self.id = context.ids.new()
        self.heartbeat = Heartbeat(context.ledger, self.id, context.clock, context.timing)
        context.ledger.register_worker(self.id, kind=kind, host=socket.gethostname(), pid=os.getpid())
        self._proof, self._beats = ExitStack(), ExitStack()
        self._proof.callback(context.liveness.begin(self.id))
        self._beats.callback(
            context.background.every(context.timing.heartbeat / 1000, self.heartbeat.beat, f"keeper-{self.id[:8]}")
        )

    def silence(self) -> None:
        """It is still proved to live, but no lease is renewed any more."""
        self._beats.close()

    def retire(self) -> None:
        """Nothing is held in its name any more, and nobody is to ask after it."""
        self._context.ledger.retire_worker(self.id)
        self._context.liveness.forget(self.id)

    def bury(self) -> None:
        """As `retire`, where others have done so in the ledger."""
        self.silence()
        self._context.liveness.forget(self.id)
        self.end()

    def end(self) -> None:
        """From now on it is proved dead, unless it was forgotten. May be called twice."""
        self.silence()
        self._proof.close()
