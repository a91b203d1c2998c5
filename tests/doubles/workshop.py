"""A workshop whose ledger a test holds: its targets belong to that, and to no other."""

from __future__ import annotations

from typing import Any

from instep.ledger.port import Ledger
from instep.project import Project
from instep.service.compose import Workshop
from instep.service.ownership import owner_in


def workshop_of(project: Project, ledger: Ledger, **options: Any) -> Workshop:
    made = Workshop(project, **options)
    made._owner = owner_in(ledger)
    return made
