"""Plans: what the slices of documents are to do.

The changes of a small plan are in the rows of its slices. Those of a large one are in a file beside the ledger, in
Arrow columns, slice by slice; a slice's row says where in the file, and the digest of these bytes. A ledger without
state files has the same columns in the rows.

A file is written as a whole before the transaction that stores the slices, and its name begins with the id of its job,
which the ledger knows before. So a file counts for as long as its job has not ended (a stopped one is resumed): all
others are removed when a plan is stored, and when a job ends. A file that is lost or damaged is said so (`PlanLost`).
Nothing but the plan is in it: its job is given up, and the rest is planned again.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select

from instep.document_state.columns import ChangeColumns, of_stream, stream_of, stream_of_table
from instep.domain.jobs import SlicePlan
from instep.domain.manifest import DocumentChange, changes_of, encode_changes
from instep.domain.storable import pack, unpack
from instep.errors import InstepError, UserError
from instep.ledger.jobs import UNFINISHED
from instep.ledger.state_files import StateFiles
from instep.ledger.tables import jobs
from instep.ledger.transaction import Database, Store, Transaction, batches, reads

if TYPE_CHECKING:
    import pyarrow as pa

#: A plan of so many documents is written to a file.
_FILE_ROWS: Final = 50_000

#: So many slices are packed before they are written.
_STREAMS: Final = 8

#: Fewer documents are no columns in a slice's row.
_FEW: Final = 16

_SUFFIX: Final = ".plan"
#: How a stream of Arrow begins, and nothing that is packed does.
_ARROW: Final = b"\xff\xff\xff\xff"


class PlanLost(UserError):
    """The plan of a job cannot be read any more."""


class Plans(Store):
    """The changes of slices of documents, wherever they are."""

    def __init__(self, database: Database, files: StateFiles | None = None) -> None:
        super().__init__(database)
        self._files = files

    def written(self, job_id: str, slices: Sequence[SlicePlan]) -> Sequence[SlicePlan]:
        """The slices of a part of a job, as they are stored: those of a large plan refer to the file that is there now.
        The ledger has the job, and no others may have its id.
        """
        columns = sum(each.units for each in slices if each.columns is not None)
        return slices if self._files is None or columns < _FILE_ROWS else _write(self._files, job_id, slices)

    def changes(self, payload: bytes) -> Sequence[DocumentChange]:
        """The changes of a slice with this payload. Raises `PlanLost`."""
        if payload.startswith(_ARROW):
            return of_stream(payload)
        value = unpack(payload)
        return of_stream(self._read(value)) if isinstance(value, dict) else changes_of(value)

    def by_value(self, payload: bytes) -> bytes:
        """The payload of a slice that holds all that it has to do. Raises `PlanLost`."""
        found = () if _holds_all(payload) else self.changes(payload)
        return encode_changes(list(found)) if found else payload

    def clear(self) -> None:
        """Remove the files of jobs that have ended; what cannot be removed now is removed the next time. A store that
        this process had no need of is not asked for them.
        """
        if self._files is None or not self._files.at_hand:
            return
        # Files first: the job of each was there before it.
        with suppress(OSError, InstepError):
            files = [(_job_of(each), each) for each in self._files.written() if _SUFFIX in PurePath(each).suffixes]
            left = self._open({job_id for job_id, _ in files}) if files else set()
            for job_id, each in files:
                if job_id not in left:
                    self._files.remove(each)

    @reads
    def _open(self, tx: Transaction, job_ids: set[str]) -> set[str]:
        found: set[str] = set()
        for some in batches(sorted(job_ids)):
            unfinished = select(jobs.c.id).where(jobs.c.id.in_(some), jobs.c.state.in_(UNFINISHED))
            found.update(tx.connection.scalars(unfinished))
        return found

    def _read(self, place: dict[str, Any]) -> bytes:
        name = str(place["plan"])
        if self._files is None:
            raise _lost(name, "it was written beside another ledger")
        try:
            found = self._files.part(name, place["at"], place["bytes"])
        except OSError as error:
            raise _lost(name, error.strerror or type(error).__name__) from error
        if _digest(found) != place["digest"]:
            raise _lost(name, "its bytes are not those that were written")
        return found


def payload_of(plan: SlicePlan) -> bytes:
    """The payload with which a slice is stored, if no file has its changes. Of few changes columns take longer."""
    if plan.columns is None:
        return plan.payload
    return encode_changes(list(plan.changes)) if plan.units < _FEW else stream_of(plan.changes)


def _holds_all(payload: bytes) -> bool:
    if payload.startswith(_ARROW):
        return False
    value = unpack(payload)
    return not (isinstance(value, dict) and "plan" in value)


def _job_of(name: str) -> str:
    return name.partition(".")[0]


def _lost(name: str, why: str) -> PlanLost:
    return PlanLost(
        f"the plan of job {_job_of(name)} is lost or damaged ({name}: {why})",
        hint="Run again: the rest is planned again.",
    )


def _write(files: StateFiles, job_id: str, slices: Sequence[SlicePlan]) -> Sequence[SlicePlan]:
    try:
        return _written(files, job_id, slices)
    except OSError as error:
        raise UserError(
            f"the plan of job {job_id} cannot be written: {error.strerror or type(error).__name__}",
            where=files.where,
            hint="Large plans are files there, beside the ledger: it needs room, and you need to be able to write "
            "there.",
        ) from error


def _written(files: StateFiles, job_id: str, slices: Sequence[SlicePlan]) -> Sequence[SlicePlan]:
    slices = _taken_over(files, job_id, slices)
    if all(each.columns is None for each in slices):
        return slices
    whole, places, at = hashlib.blake2b(digest_size=16), dict[int, dict[str, Any]](), 0
    with files.staged(f"{job_id}.{uuid.uuid4().hex}{_SUFFIX}.torn") as staged:
        numbers = [number for number, each in enumerate(slices) if each.columns is not None]
        for number, (data, digest) in zip(numbers, _streams([slices[each] for each in numbers]), strict=True):
            places[number] = {"at": at, "bytes": len(data), "digest": digest}
            at += staged.file.write(data)
            whole.update(digest.encode())
        staged.name = name = f"{job_id}.{whole.hexdigest()}{_SUFFIX}"
    return [
        replace(each, payload=pack({"plan": name, **places[number]}), columns=None) if number in places else each
        for number, each in enumerate(slices)
    ]


def _streams(slices: Sequence[SlicePlan]) -> Iterator[tuple[bytes, str]]:
    """The changes of each slice as a stream, with its digest. Naming documents keeps the interpreter, and compressing
    does not: another thread does that.
    """

    def made(table: pa.Table) -> tuple[bytes, str]:
        data = stream_of_table(table, compression="lz4")
        return data, _digest(data)

    with ThreadPoolExecutor(1) as pool:
        for start in range(0, len(slices), _STREAMS):
            yield from pool.map(made, map(_named, slices[start : start + _STREAMS]))


def _named(each: SlicePlan) -> pa.Table:
    assert isinstance(each.changes, ChangeColumns), "a plan in columns"
    return each.changes.with_ids()


def _taken_over(files: StateFiles, job_id: str, slices: Sequence[SlicePlan]) -> list[SlicePlan]:
    """The slices; of those that tasks have written, the files are copied to the job's."""
    names: dict[str, str] = {}
    found: list[SlicePlan] = []
    for each in slices:
        if each.stored is None:
            found.append(each)
            continue
        if each.stored.file not in names:
            file = Path(each.stored.file)
            with files.staged(f"{job_id}.{uuid.uuid4().hex}{_SUFFIX}.torn") as staged, file.open("rb") as written:
                shutil.copyfileobj(written, staged.file)
                staged.name = names[each.stored.file] = f"{job_id}.{file.stem}{_SUFFIX}"
        place = {"plan": names[each.stored.file], **each.stored.place}
        found.append(replace(each, payload=pack(place), columns=None, stored=None))
    return found


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
