"""What ledgers on every real server have in common beyond the contract."""

from __future__ import annotations

from tests.ledger.server_opening import ServerOpening
from tests.ledger.server_outages import ServerOutages
from tests.ledger.server_sharing import ServerSharing


class ServerLedger(ServerOpening, ServerOutages, ServerSharing):
    """Inherit it and give the fixture `database`."""
