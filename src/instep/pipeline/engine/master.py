"""Ask a standalone Spark master for an answer before a JVM is started, which would look for it for a minute."""

from __future__ import annotations

import socket
import struct
import time

from instep.errors import Away, UserError

TRY_LATER = "Is it running, and is the address right? Run again when it is there."

#: How long a port may take to be opened, and all masters together to say anything.
_KNOCK_SECONDS = 3.0
_ANSWER_SECONDS = 10.0

#: A message of Spark's own protocol: a length that counts itself, a type, and its content. We ask for a file that no
#: master has. It says so, whether it demands a secret or not, and keeps nothing of it.
_HEAD = struct.Struct(">qb")
_FILE = b"files/instep"
_QUESTION = _HEAD.pack(_HEAD.size + 4 + len(_FILE), 6) + struct.pack(">i", len(_FILE)) + _FILE
#: No message of a type beyond these, nor a longer answer to that.
_TYPES = range(-1, 16)
_LONGEST = 2**20
_TLS_ALERT = 0x15


def demand_master(master: str) -> None:
    """Check that one of the masters of `spark://…` answers. Raises `Away` if none does."""
    why = "it names no host and port"
    deadline = time.monotonic() + _ANSWER_SECONDS
    for each in master.removeprefix("spark://").split(","):
        host, _, port = each.rpartition(":")
        if not host or not port.isdigit():
            raise UserError(
                f"{master!r} is not a master: {each!r} has no host and port", hint="Write spark://HOST:PORT."
            )
        problem = _problem(host.strip("[]"), int(port), deadline)
        if problem is None:
            return
        why = problem
    raise Away(f"the Spark master does not answer: {why}", where=master, hint=TRY_LATER)


def _problem(host: str, port: int, deadline: float) -> str | None:
    said = b""
    try:
        with socket.create_connection((host, port), timeout=_KNOCK_SECONDS) as connection:
            connection.sendall(_QUESTION)
            while len(said) < _HEAD.size:
                connection.settimeout(max(0.1, deadline - time.monotonic()))
                piece = connection.recv(_HEAD.size - len(said))
                if not piece:
                    break
                said += piece
    except TimeoutError:
        return "it says nothing"
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    # One that wants TLS says so, or hangs up: Spark itself is to find out.
    if len(said) < _HEAD.size or said[0] == _TLS_ALERT:
        return None
    length, kind = _HEAD.unpack(said)
    if _HEAD.size <= length <= _LONGEST and kind in _TYPES:
        return None
    return f"something else than Spark is there, and says {said!r}"
