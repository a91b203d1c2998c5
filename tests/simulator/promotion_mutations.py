"""Seeded bugs of promotion: what is served in place of what, and when."""

from __future__ import annotations

from instep.domain.promotion_rules import Judged
from instep.entities.documents import changes, promotion_checks
from instep.jobs import finish

from .faults import Fault
from .mutations import ALL, Patch, seeded_bug, seeded_bug_when

__all__ = ["ALL"]


@seeded_bug
def a_rebuild_without_what_is_served_is_served(patch: Patch) -> None:
    patch.setattr(promotion_checks, "_judged", lambda part, checkpoint, ledger, status: Judged(0, 0))


@seeded_bug
def what_was_refused_is_built_again_and_again(patch: Patch) -> None:
    patch.setattr(changes, "_would_fail_again", lambda *args: None)


@seeded_bug_when("parts.finish", go=[Fault.PAUSE_BEFORE])
def what_is_served_is_not_put_back(patch: Patch) -> None:
    """The alias was moved, and then the ledger did not take it."""
    patch.setattr(finish, "_serve_as_recorded", lambda setup, part, ledger: None)


@seeded_bug
def what_is_promoted_is_not_looked_at_again(patch: Patch) -> None:
    """A bug that was there: it is not checked that the instance is still in work by the job."""
    patch.setattr(finish, "_left", lambda ledger, part, job_id: None)
