"""The channel to a Spark Connect server, which is closed once the server has stopped answering.

A server that is frozen, or cut off by the network, says nothing: what waits for it would do so for minutes, or for
ever. Deadlines of the calls themselves are no help, because a job may take hours. So while any of them waits, the
server is asked something else that it can answer at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
from pyspark.sql.connect.client.core import DefaultChannelBuilder

from instep.error_transport import SparkLost

#: How long a call may wait before the server is asked, and how often; how long it may take then, and how many questions
#: in a row it may leave unanswered (the first one may be old already, if this process itself had been stopped).
ASK_SECONDS = 2.0
ANSWER_SECONDS = 5.0
QUESTIONS = 2
#: A server need not know it: its refusal is an answer too.
_QUESTION = "/grpc.health.v1.Health/Check"


class WatchedChannelBuilder(DefaultChannelBuilder):  # type: ignore[misc]  # PySpark brings no types for it
    """Builds such channels from a Connect address. `hang_up` closes them when there is no answer."""

    def __init__(self, address: str, hang_up: Callable[[], None]) -> None:
        super().__init__(address)
        self._hang_up = hang_up

    def toChannel(self) -> Any:  # noqa: N802 -- PySpark's name
        return _WatchedChannel(super().toChannel(), self._hang_up)


class _WatchedChannel:
    """Asks while calls wait. Without an answer it hangs up, and they raise `SparkLost`.

    Not by gRPC's interceptors: with one, a call that begins when the channel has just been closed ends the process.
    """

    def __init__(self, channel: grpc.Channel, hang_up: Callable[[], None]) -> None:
        self._channel = channel
        self._hang_up = hang_up
        self._ask = channel.unary_unary(_QUESTION)
        self._changed = threading.Condition()
        self._waiting = 0
        self._watching = False
        self._silent = False

    def unary_unary(self, *method: Any, **how: Any) -> Callable[..., Any]:
        return partial(self._one, self._channel.unary_unary(*method, **how))

    def stream_unary(self, *method: Any, **how: Any) -> Callable[..., Any]:
        return partial(self._one, self._channel.stream_unary(*method, **how))

    def unary_stream(self, *method: Any, **how: Any) -> Callable[..., Iterator[Any]]:
        return partial(self._many, self._channel.unary_stream(*method, **how))

    def close(self) -> None:
        self._channel.close()

    def _one(self, call: Callable[..., Any], *request: Any, **how: Any) -> Any:
        with self._watched():
            return call(*request, **how)

    def _many(self, call: Callable[..., Any], *request: Any, **how: Any) -> Iterator[Any]:
        with self._watched():
            return self._each(call(*request, **how))

    def _each(self, answers: Iterator[Any]) -> Iterator[Any]:
        with self._watched():
            yield from answers

    @contextmanager
    def _watched(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
            if not self._watching and not self._silent:
                self._watching = True
                threading.Thread(target=self._watch, name="spark-watch", daemon=True).start()
        try:
            yield
        except (grpc.RpcError, ValueError):  # `ValueError`: the channel was closed before the call began.
            if not self._silent:
                raise
        finally:
            with self._changed:
                self._waiting -= 1
                self._changed.notify_all()
        if self._silent:
            seconds = ANSWER_SECONDS * QUESTIONS
            raise SparkLost(f"Spark Connect does not answer any more: not within {seconds:.0f} s")

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: not self._waiting, ASK_SECONDS):
                    self._watching = False
                    return
            if not any(self._answers() for _ in range(QUESTIONS)):
                self._silent = True
                self._hang_up()
                return

    def _answers(self) -> bool:
        """Whether it says anything. That it cannot be reached, the waiting calls find out by themselves."""
        try:
            self._ask(b"", timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        except ValueError:  # The channel was closed already.
            return True
        return True
