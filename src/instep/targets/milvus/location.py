"""Connection to Milvus: its address, requests, names, and the meaning of its errors.

Milvus takes letters, digits and underscores in names: other characters of an index's name become `_x2d_` and the like.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from instep.domain.texts import without
from instep.errors import Away, InstepError, Transient, UserError
from instep.targets.ownership import checked_name

#: How long one call may take, its repetitions (by the client) included.
TIMEOUT_SECONDS = 60.0
#: Loading a collection into memory, say.
_LONG_SECONDS = 600.0
_CONNECT_SECONDS = 10.0
#: A server that is back is found so soon: gRPC itself would look for it ever more seldom. Whether it is still there is
#: asked as seldom as any server of gRPC allows: by default the client asks every ten seconds, and Milvus Lite hangs up
#: on it ("Too many pings").
_CONNECTION = {
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1_000,
    "grpc.keepalive_time_ms": 310_000,
    "grpc.keepalive_permit_without_calls": False,
}
_LONG = {"load_collection", "flush", "compact"}

_NOT_FOUND, _NOT_LOADED = 100, 101
_CANNOT_CONNECT = 2
#: Out of reach, out of memory, too much at once (twice), clocks that lag.
_PASSING = {_CANNOT_CONNECT, 3, 4, 8, 11}
_TOO_LARGE = ("larger than max", "the limit size", "message size")

#: Milvus Lite takes one writer at a time.
_TURNS: dict[str, threading.RLock] = {}
_OPENING = threading.Lock()


class Missing(UserError):
    """The collection or alias does not exist."""


class Refused(UserError):
    """Milvus does not do what it was asked, now or later."""


class NotLoaded(Transient):
    """A collection is there, and not in memory."""


class TooLarge(InstepError):
    """A request or its answer has more bytes than Milvus sends: in parts it may do."""


@dataclass(frozen=True)
class Location:
    """`uri` is `http://host:19530/database` (or https), or a file that ends in `.db`: Milvus Lite, in this process."""

    uri: str
    token: str | None = field(default=None, repr=False)

    @property
    def remote(self) -> bool:
        return "://" in self.uri

    @property
    def is_lite(self) -> bool:
        """Milvus Lite, in this process or as a server."""
        return not self.remote or _serves_lite(self)

    @property
    def shown(self) -> str:
        """The location without secrets."""
        parts = urlsplit(self.uri)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if self.remote else self.uri

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """A lock against other writers in this process. A server has nothing like it."""
        with contextlib.nullcontext() if self.remote else _TURNS.setdefault(self.uri, threading.RLock()):
            yield

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """A method of pymilvus' client. A collection that is not in memory is loaded first."""
        try:
            return self._call(method, *args, **kwargs)
        except NotLoaded:
            self._call("load_collection", args[0])
            return self._call(method, *args, **kwargs)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        with self.understood():
            client = _client(self.uri, self.token, os.getpid())
            timeout = _LONG_SECONDS if method in _LONG else TIMEOUT_SECONDS
            return getattr(client, method)(*args, timeout=timeout, **kwargs)

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Errors of the client become errors of Instep."""
        try:
            yield
        except ImportError:
            needed, more = ("pymilvus", "") if self.remote else ("pymilvus and milvus-lite", " milvus-lite")
            hint = f"pip install 'instep[milvus]'{more}"
            raise UserError(f"Milvus needs {needed}", where=self.shown, hint=hint) from None
        except Exception as error:
            explained = _explained(error, self)
            if explained is None:
                raise
            raise explained from None


@cache
def _client(uri: str, token: str | None, process: int) -> Any:
    """Kept: connecting takes a while. Its connection is no good to a fork (`process`)."""
    with _OPENING:
        from pymilvus import MilvusClient
        from pymilvus.exceptions import MilvusException

        # It writes every error to the terminal, though it raises them as well.
        for library in ("pymilvus", "milvus_lite"):
            logging.getLogger(library).setLevel(logging.CRITICAL + 1)
        if "://" not in uri:
            import milvus_lite  # noqa: F401 (asked for here: pymilvus says nothing of use when it is not there)

            _make_parent(uri)
        try:
            return MilvusClient(
                uri, token=token or "", timeout=_CONNECT_SECONDS, dedicated=True, grpc_options=_CONNECTION
            )
        except MilvusException:
            if "://" not in uri and _is_locked(uri):
                raise Away(
                    "another process has it open",
                    where=uri,
                    hint="Milvus Lite is for one process at a time; several need a server.",
                ) from None
            raise


def _make_parent(file: str) -> None:
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder cannot be made: {error.strerror}", where=str(Path(file).parent)) from None


def _is_locked(file: str) -> bool:
    import fcntl

    try:
        with Path(file, "LOCK").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _explained(error: Exception, place: Location) -> InstepError | None:
    """An error of Milvus or its client as an error of Instep; None for others."""
    from grpc import StatusCode

    answer = _answer(error)
    if answer is None:
        return None
    said = _without(place.token, answer.said)
    if answer.code in (StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED) or "auth check failure" in said:
        return UserError("Milvus refuses: the token is not accepted", where=place.shown, hint="Check the token.")
    kind = _kind(answer)
    if kind is Missing:
        return Missing(f"there is no such index ({said})", where=place.shown, hint="Build an index with: instep run")
    return Refused(f"Milvus refused: {said}", where=place.shown) if kind is Refused else kind(f"{place.shown}: {said}")


class _Answer(NamedTuple):
    """`code` is Milvus' number, or the status of the connection. `passing`: it says that it may do later."""

    code: Any
    said: str
    passing: bool = False


def _answer(error: Exception) -> _Answer | None:
    from grpc import RpcError
    from pymilvus.exceptions import MilvusException

    cause = error.__cause__
    if isinstance(cause, RpcError) and getattr(error, "code", None) == _CANNOT_CONNECT:
        error = cause  # Only it tells a wrong token from a server that is away.
    if isinstance(error, RpcError):
        return _Answer(error.code(), str(error.details() or ""))
    return _Answer(error.code, str(error.message), error.retriable) if isinstance(error, MilvusException) else None


def _kind(answer: _Answer) -> type[InstepError]:
    from grpc import StatusCode

    code, said, passing = answer
    if any(each in said for each in _TOO_LARGE):
        return TooLarge
    if code in (StatusCode.UNIMPLEMENTED, StatusCode.INVALID_ARGUMENT):
        return Refused
    if code == _NOT_LOADED:
        return NotLoaded
    if isinstance(code, StatusCode) or passing or code in _PASSING or "service not ready" in said:
        return Transient
    return Missing if code == _NOT_FOUND else Refused


@functools.cache
def _serves_lite(place: Location) -> bool:
    """Asked once: a server does not become another one."""
    return str(place.call("get_server_version")).startswith("milvus_lite")


def _without(token: str | None, said: str) -> str:
    """A message in one line, and without the token."""
    # A token may be a user and a password.
    return without(" ".join(said.split()), token, (token or "").partition(":")[2])


#: Holds what Instep knows of its indexes. No index has a name that begins like this, and all others of Instep do.
STATE = "_instep"

_LONGEST = 255
_ODD = re.compile(r"\A[0-9]|[^A-Za-z0-9_]|_(?=x[0-9a-f]{2}_)")
_CODED = re.compile(r"_x([0-9a-f]{2})_")

#: What ends a text in a filter, or begins something else in it. Anything else stands for itself.
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def collection(name: str) -> str:
    """The collection (or alias) of an index (or alias) of this name."""
    coded = _ODD.sub(lambda found: f"_x{ord(found[0]):02x}_", checked_name(name))
    if len(coded) > _LONGEST:
        raise UserError(f"{name!r} is too long for a collection of Milvus", hint="Use a shorter name.")
    return coded


def chunk_lists(name: str) -> str:
    """The collection that lists the chunks of this index (see `chunk_lists`). Its name has room for any index's."""
    return f"{STATE}_{hashlib.sha256(checked_name(name).encode()).hexdigest()}"


def index(coded: str) -> str:
    """The index whose collection this is."""
    return _CODED.sub(lambda found: chr(int(found[1], 16)), coded)


def partition(prefix: str, bucket: int) -> str:
    return f"{prefix}_{bucket}"


def text(value: str) -> str:
    """A text as it stands in a filter."""
    return f'"{value.translate(_ESCAPES)}"'


def texts(values: Iterable[str]) -> str:
    return f"[{', '.join(map(text, values))}]"
