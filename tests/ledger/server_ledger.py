"""What ledgers on every real server have in common beyond the contract, and which part of that differs."""

from __future__ import annotations

from tests.contracts.ledger.claims import Claims
from tests.contracts.ledger.completing import Completing
from tests.contracts.ledger.documents import Documents
from tests.contracts.ledger.figures import Figuring
from tests.contracts.ledger.holds import HeldKeys
from tests.contracts.ledger.texts import Texts
from tests.ledger.server_opening import ServerOpening
from tests.ledger.server_outages import ServerOutages
from tests.ledger.server_sharing import ServerSharing


class ServerLedger(ServerOpening, ServerOutages, ServerSharing):
    """Inherit it and give the fixture `database`."""


class ContractInShort(Claims, Completing, Documents, HeldKeys, Figuring, Texts):
    """What a dialect does with statements, locks, collations and text sizes of its own: all else is rules, which are
    the same on every server.
    """
