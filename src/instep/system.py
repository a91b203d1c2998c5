"""The real clock, ids and background; simulations bring their own."""

from __future__ import annotations

import atexit
import gc
import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar

from instep.domain.texts import cleaned

T = TypeVar("T")


def collect_garbage_seldom() -> None:
    """For a process of our own. Planning and replays make many small objects that all stay: looking for garbage among
    them took 15 % of a run that finds nothing to do (20,000 documents), and an eighth again as the process ended.
    """
    gc.set_threshold(200_000, 20, 100)
    # Once; registered before whatever is imported later, it runs after what that has to do at the end.
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


class SystemClock:
    """Implements `domain.clock.Clock`."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class RandomIds:
    """Implements `domain.clock.Ids`."""

    def new(self) -> str:
        return str(uuid.uuid4())


def _warn(name: str, what: str) -> None:
    logging.getLogger("instep").warning("%s: %s", name, what)


class Threads:
    """Implements `domain.clock.Background`: a daemon thread each. Unexpected errors end none of them: they are
    reported, under the thread's name, and the next call comes on time.
    """

    def __init__(self, report: Callable[[str, str], None] | None = None) -> None:
        self._report = report or _warn

    def every(self, seconds: float, task: Callable[[], bool], name: str) -> Callable[[], None]:
        end = threading.Event()

        def keep() -> None:
            said = ""
            while not end.wait(seconds):
                try:
                    if not task():
                        return
                    said = ""
                except Exception as error:
                    now = f"unexpected {type(error).__name__}: {error}"
                    if now != said:
                        said = now
                        with suppress(Exception):
                            self._report(name, cleaned(f"{now}; going on"))

        thread = threading.Thread(target=keep, name=name, daemon=True)
        thread.start()

        def stop() -> None:
            end.set()
            thread.join()

        return stop

    def beside(self, task: Callable[[], T], name: str) -> Callable[[], T]:
        done = Future[T]()

        def run() -> None:
            try:
                done.set_result(task())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
        return done.result
