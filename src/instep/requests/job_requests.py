"""Requests for jobs: wants as of now, with what is said of the job that brings them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from instep.answers.jobs import entities_to_retry
from instep.answers.wants import Want
from instep.domain.clock import Ids
from instep.domain.jobs import Job
from instep.domain.refs import PartitionRef
from instep.domain.settings import JobSettings
from instep.entities.generations import generation_of
from instep.entities.instances import rebuild, to_rebuild
from instep.errors import UserError
from instep.ledger.ledger import Ledger
from instep.requests.wants import make_want


@dataclass(frozen=True, slots=True)
class Asked:
    """The wants that were made, and the jobs that work on them already."""

    wants: tuple[Want, ...]
    refs: tuple[PartitionRef, ...]

    @property
    def jobs(self) -> tuple[str, ...]:
        """Ids, those of the first partitions first."""
        current = (each for want in self.wants for _, each in want.lacking)
        return tuple(dict.fromkeys(each.worked_on_by for each in current if each is not None and each.worked_on_by))


def ask(
    ledger: Ledger,
    ids: Ids,
    refs: Sequence[PartitionRef],
    *,
    rebuild_first: bool = False,
    settings: JobSettings,
    generation: str | None = None,
    by: str = "",
) -> Asked:
    """One want for each generation that these are read in. With `rebuild_first`, all that are there are left for new
    builds. Raises `UserError`, and asks for nothing, when a job works on one of those.
    """
    if not refs:
        raise UserError("nothing is asked for: no partition is declared", hint="List namespaces in `namespaces:`.")
    found = {ref: generation_of(ledger, ref, generation) for ref in refs}
    if rebuild_first:
        for ref, name in found.items():
            to_rebuild(ledger, ref, name)
        for ref, name in found.items():
            rebuild(ledger, ref, name, by=by)
    made = [
        make_want(
            ledger,
            ids.new(),
            [ref for ref in refs if found[ref] == name],
            generation=name,
            fresh_within=0,
            by=by,
            settings=settings,
        )
        for name in dict.fromkeys(found.values())
    ]
    return Asked(tuple(made), tuple(refs))


def ask_again(ledger: Ledger, ids: Ids, job: Job, *, by: str = "") -> Asked | None:
    """For what failed in an ended job. None if nothing did."""
    failed = {
        generation: [
            each.part.ref for each in job.parts if each.part.generation == generation and each.part.ref.entity in names
        ]
        for generation, names in entities_to_retry(job).items()
    }
    settings = JobSettings(retry_failures=True)
    asked = [
        ask(ledger, ids, refs, settings=settings, generation=generation, by=by) for generation, refs in failed.items()
    ]
    if not asked:
        return None
    return Asked(
        tuple(want for each in asked for want in each.wants), tuple(ref for each in asked for ref in each.refs)
    )
