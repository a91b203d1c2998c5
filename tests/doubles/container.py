"""A container whose ledger a test holds: its targets belong to that, and to no other."""

from __future__ import annotations

from typing import Any

from instep.container import Container
from instep.entities.ownership import owner_in
from instep.ledger.ledger import Ledger
from instep.project import Project


def workshop_of(project: Project, ledger: Ledger, **options: Any) -> Container:
    made = Container(project, **options)
    made._owner = owner_in(ledger)
    return made
