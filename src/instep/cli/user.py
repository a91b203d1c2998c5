"""Who asks: kept with what was asked for, so that others learn it."""

from __future__ import annotations

import getpass
import socket


def user_text() -> str:
    """`ann on server-1`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a user without a name
        user = "somebody"
    return f"{user} on {socket.gethostname()}"
