"""Spark sessions: obtained when they are needed, shared within a process, and ended by the last user."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.error_transport import SparkLost, explained, out_of_memory
from instep.errors import Away, Conflict, Fenced, Transient, Unknown, UserError
from instep.own_code import send, send_instep
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.launch import new_session
from instep.pipeline.engine.settings import SparkSettings, local_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The exit code of a JVM of Spark that ran out of memory.
_OUT_OF_MEMORY = 52


@dataclass
class _Jvm:
    """The classic Spark that Instep started in this process, with its first session, and how many use it. There is one
    at most: Spark has no more in a process.
    """

    session: SparkSession
    settings: SparkSettings
    users: int = 1


#: Sessions start and end one at a time; `_jvm` and `_connected` are of this process.
_TURN = threading.RLock()
_jvm: _Jvm | None = None
#: Sessions with Connect servers that Instep opened: each has one owner, and is never taken for a user's.
_connected: weakref.WeakSet[Any] = weakref.WeakSet()


class LazySpark:
    """A Spark session that starts when it is needed, or ahead of that in the background.

    `given` is a session of the user's: used as it is, never stopped. Without one, a session that is
    already active in this process (a notebook's, a submitted script's) is used the same way. What Instep itself
    has started here is shared by all that run in this process, each in a session of its own, and ends with the last of
    them. `archive_to`: see `home`.
    """

    def __init__(
        self,
        settings: SparkSettings | None = None,
        given: SparkSession | None = None,
        *,
        archive_to: Path | None = None,
        code: Callable[[], Iterable[type]] = tuple,
    ) -> None:
        self._settings = settings or SparkSettings()
        self._archive_to = archive_to
        self._code = code
        self._session = given
        self._jvm: _Jvm | None = None
        self._ours = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._closed = False

    @property
    def warm(self) -> bool:
        """Whether a session is there (or on its way), so that using it costs no start."""
        return self._session is not None or self._thread is not None or _active() is not None

    def begin(self) -> None:
        """Start in the background; errors wait for `get`."""
        with self._lock:
            if self._session is None and self._thread is None:
                # Two threads that import it at once may each find half of it: its packages import each other.
                import pyspark  # noqa: F401 - loaded here first

                self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)
                self._thread.start()

    def get(self) -> SparkSession:
        """The session; waits for a start that is under way. One of ours that is over is replaced. Raises `Away` when
        Spark is out of reach, and `UserError` when there can be none.
        """
        with self._lock:
            session = self._session
            if session is not None and self._ours and sparkapi.is_over(session):
                self._session, self._thread = None, None
                self._release(session)
        self.begin()
        thread = self._thread
        if thread is not None:
            thread.join()
        with self._lock:
            if self._error is not None:
                error, self._error, self._thread = self._error, None, None
                raise error
            if self._session is None and self._closed:
                raise UserError("this Spark session is closed already")
            session = self._session
        if session is None:
            return self.get()  # Another thread was told that it is over, or did not start: this one tries again.
        if not sparkapi.is_on_this_machine(session):
            send_instep(session)
        for each in self._code():
            send(session, each)
        return session

    def explained(self, session: SparkSession, error: Exception) -> Exception:
        """Translate an error of the session into one that says who should act. A session that has ended, or cannot be
        used any more, is left: the next `get` starts another one, if it was ours.
        """
        code = None if sparkapi.is_connect(session) else sparkapi.jvm_exit()
        found = explained(error)
        if not isinstance(found, SparkLost) and not sparkapi.is_over(session):
            return found
        if isinstance(found, UserError | Fenced | Conflict | Unknown):
            return found
        with self._lock:
            # What another thread has left before was ours: what is given stays.
            left = self._session is not session
            given = not left and not self._ours
            if not left and not given:
                self._session, self._thread = None, None
                self._release(session, lost=isinstance(found, SparkLost))
        if code == _OUT_OF_MEMORY:
            return out_of_memory()
        why = str(found) if isinstance(found, Transient) else f"Spark has ended: {found}"
        if given and sparkapi.is_over(session):
            return Away(f"the Spark session that was given has ended: {why}", hint="Make another one, then run again.")
        return Transient(why)

    def close(self, *, at_once: bool = False) -> None:
        """End what this object started, if nothing else in this process uses it. A start still under way is undone when
        it is through. `at_once`: no archive is written.
        """
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
            if session is not None and self._ours:
                self._release(session, at_once=at_once)

    def _start(self) -> None:
        try:
            session, jvm, ours = self._opened()
        except BaseException as error:
            self._error = error
            return
        with self._lock:
            self._jvm, self._ours = jvm, ours
            if not self._closed:
                self._session = session
            elif ours:
                self._release(session)

    def _opened(self) -> tuple[SparkSession, _Jvm | None, bool]:
        """A session, with the Spark of this process that it is one of, if it is; and whether it is ours."""
        global _jvm  # noqa: PLW0603 -- a process has one Spark, and so one variable for it
        with _TURN:
            active = _active()
            if active is not None and not _made_here(active) and not sparkapi.is_over(active):
                return active, None, False
            if self._settings.address:
                if _jvm is not None:
                    raise _other_spark(_jvm.settings, self._settings)
                session = new_session(self._settings)
                _connected.add(session)
                return session, None, True
            if _jvm is not None and sparkapi.is_over(_jvm.session):
                sparkapi.stop(_jvm.session)
                _jvm = None
            if _jvm is None:
                session = new_session(self._settings, archive_to=self._archive_to)
                _jvm = _Jvm(session, self._settings)
                return session, _jvm, True
            if _jvm.settings.place != self._settings.place:
                raise _other_spark(_jvm.settings, self._settings)
            session = _beside(_jvm.session, self._settings)
            _jvm.users += 1
            return session, _jvm, True

    def _release(self, session: SparkSession, *, at_once: bool = False, lost: bool = False) -> None:
        """Release a session. `lost`: no other session of this process can use its Spark, either."""
        global _jvm  # noqa: PLW0603 -- see `_opened`
        jvm, self._jvm, self._ours = self._jvm, None, False
        with _TURN:
            if jvm is None:
                _connected.discard(session)
                sparkapi.stop(session)
                return
            jvm.users -= 1
            over = lost or sparkapi.is_over(jvm.session)
            if jvm is _jvm and (over or not jvm.users):
                if at_once:
                    sparkapi.kill_jvm()
                sparkapi.stop(jvm.session)
                _jvm = None


def _made_here(session: SparkSession) -> bool:
    """Whether it is of a Spark that Instep started, and not the user's."""
    if sparkapi.is_connect(session):
        return session in _connected
    return _jvm is not None and session.sparkContext is _jvm.session.sparkContext


def _other_spark(there: SparkSettings, wanted: SparkSettings) -> UserError:
    return UserError(
        f"this process uses Spark at {there.shown} already, and can use no other one beside it: {wanted.shown}",
        hint="Run them one after the other, or in processes of their own.",
    )


def _beside(session: SparkSession, settings: SparkSettings) -> SparkSession:
    """Another session of the same Spark, with settings of its own as far as they can still be chosen."""
    made = session.newSession()
    for key, value in {**(local_options(scans=settings.scans) if settings.is_local else {}), **settings.config}.items():
        if key.startswith("spark.sql.") and made.conf.isModifiable(key):
            made.conf.set(key, value)
    return made


def _active() -> SparkSession | None:
    """A session that already lives in this process; never imports Spark to find out."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        session: SparkSession = SparkSession.active()
    except PySparkRuntimeError:
        return None
    return session
