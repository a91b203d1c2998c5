"""Opens the bus that a project's URL names."""

from __future__ import annotations

from instep.bus.bus import Bus
from instep.errors import UserError
from instep.ledger.ledger import Ledger
from instep.servers.address import nats_address


def open_bus(url: str | None, ledger: Ledger) -> Bus:
    """The bus at a `nats://` or `tls://` URL; without one, that in the ledger, which must stay open as long.

    Raises `UserError` when it cannot be opened; the message never holds a password or a token.
    """
    if url is None:
        from instep.bus.ledger_bus import LedgerBus

        return LedgerBus(ledger)
    try:
        address = nats_address(url)
    except ValueError as error:
        raise UserError(f"the bus's URL {error}") from error

    try:
        from instep.bus.nats.nats_bus import open_nats
    except ImportError as error:
        raise UserError(
            "the client for NATS is not installed",
            where=address.label,
            hint="Install it with: pip install 'instep[nats]'",
        ) from error
    return open_nats(address)
