"""How every ledger behaves. Inherit `LedgerContract` and give the fixture `ledgers`."""

from __future__ import annotations

from tests.contracts.ledger.bad_ends import BadEnds
from tests.contracts.ledger.buckets import Buckets
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    canonical_of,
    change,
    claim_all,
    complete_all,
    end,
    entry,
    fail,
    imported,
    job_of,
    joined,
    lease_of,
    logged,
    new_part,
    outcome,
    part_of,
    plan,
    planned,
    plans,
    register,
    running,
    running_two,
    state_of_everything,
    status_of,
    take_over,
    upstream_fails,
)
from tests.contracts.ledger.claims import Claims
from tests.contracts.ledger.clocks import Clocks
from tests.contracts.ledger.completing import Completing
from tests.contracts.ledger.dependencies import Dependencies
from tests.contracts.ledger.documents import Documents
from tests.contracts.ledger.dropping import Dropping
from tests.contracts.ledger.entities import Entities
from tests.contracts.ledger.events import Events
from tests.contracts.ledger.extending import Extending
from tests.contracts.ledger.figures import Figuring
from tests.contracts.ledger.finishing import Finishing
from tests.contracts.ledger.forgetting import Forgetting
from tests.contracts.ledger.forgotten_events import ForgettingEvents
from tests.contracts.ledger.generations import Generations
from tests.contracts.ledger.holds import HeldKeys
from tests.contracts.ledger.instances import Instances
from tests.contracts.ledger.jobs import Jobs
from tests.contracts.ledger.leases import Leases
from tests.contracts.ledger.losses import Losing
from tests.contracts.ledger.paces import Paces
from tests.contracts.ledger.pages import Paging
from tests.contracts.ledger.part_stops import PartStops
from tests.contracts.ledger.promotion import Promotion
from tests.contracts.ledger.recovery import Recovery
from tests.contracts.ledger.row_slices import RowSlices
from tests.contracts.ledger.searching import Searching
from tests.contracts.ledger.seen_tables import SeenTables
from tests.contracts.ledger.spending import Spending
from tests.contracts.ledger.stopping import Stopping
from tests.contracts.ledger.takeover import Takeover
from tests.contracts.ledger.targets import Targets
from tests.contracts.ledger.texts import Texts
from tests.contracts.ledger.unplanned import Unplanned
from tests.contracts.ledger.verifying import Verifying
from tests.contracts.ledger.wants import Wants
from tests.contracts.ledger.workers import Workers

__all__ = [
    "OTHER",
    "REF",
    "START",
    "LedgerContract",
    "VirtualClock",
    "canonical_of",
    "change",
    "claim_all",
    "complete_all",
    "end",
    "entry",
    "fail",
    "imported",
    "job_of",
    "joined",
    "lease_of",
    "logged",
    "new_part",
    "outcome",
    "part_of",
    "plan",
    "planned",
    "plans",
    "register",
    "running",
    "running_two",
    "state_of_everything",
    "status_of",
    "take_over",
    "upstream_fails",
]


class LedgerContract(
    Workers,
    Leases,
    Jobs,
    Stopping,
    PartStops,
    Searching,
    Paging,
    Paces,
    SeenTables,
    Claims,
    Completing,
    Documents,
    Buckets,
    Finishing,
    Promotion,
    Targets,
    Takeover,
    BadEnds,
    RowSlices,
    Recovery,
    Events,
    Extending,
    Instances,
    Generations,
    Entities,
    Dropping,
    Wants,
    Dependencies,
    Verifying,
    HeldKeys,
    Figuring,
    Losing,
    Spending,
    Texts,
    Clocks,
    Unplanned,
    Forgetting,
    ForgettingEvents,
):
    """All of it."""
