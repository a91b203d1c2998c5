"""Journal of fences and commits in one physical index, and of aliases: records in the collection `_instep`.

Milvus has no transactions and no conditional writes: a fence writes first and looks then, a commit looks first.
In this process no other writer comes in between (`Location.alone`). On a server a commit may come in between; the next
claim of its slices finds it.
"""

from __future__ import annotations

import base64
import hashlib
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from instep.domain.waves import Mark
from instep.errors import Conflict, Fenced, UserError
from instep.targets.journal import refuse_epoch, refuse_fences
from instep.targets.milvus import layout, location
from instep.targets.milvus.location import Location, Missing, Refused
from instep.targets.request_limits import portions

#: Bytes of an outcome in one record: as text they are a third more, and have to fit into it.
_PART_BYTES = 48_000
#: Records in one request: the longest of them are some megabytes together.
_RECORDS = 64
_SLICES = 200

Record = dict[str, Any]


def read(place: Location, where: str, fields: Sequence[str]) -> list[Record]:
    """Records that are there now. Where there is no collection yet there are none."""
    try:
        found = place.call(
            "query", location.STATE, filter=where, output_fields=list(fields), consistency_level="Strong"
        )
    except Missing:
        return []
    return [{name: each[name] for name in fields} for each in found]


def write(place: Location, records: Sequence[Record]) -> None:
    """Write records, one request after the other, in order. A record of the same id is replaced."""
    for some in portions(records, _RECORDS):
        try:
            place.call("upsert", location.STATE, list(some))
        except Missing:
            layout.create_state(place)
            place.call("upsert", location.STATE, list(some))


def remove(place: Location, where: str) -> None:
    try:
        place.call("delete", location.STATE, filter=where, consistency_level="Strong")
    except Missing:
        return


def record(entry: str, name: str, *, attempt: str = "", mark: Mark | None = None, part: int = 0, **more: Any) -> Record:
    """A record whose id follows from its content: written again it is the same record."""
    slice_id = mark.slice_id if mark else ""
    said = f"{entry}\0{name}\0{attempt}\0{slice_id}\0{mark.fence if mark else 0}\0{part}"
    return {
        "id": hashlib.sha256(said.encode()).hexdigest(),
        "entry": entry,
        "name": name,
        "attempt": attempt,
        "slice": slice_id,
        "fence": mark.fence if mark else 0,
        "part": part,
        "outcome": "",
        "seq": 0,
        "epoch": 0,
        "at": int(time.time() * 1000),
        "nothing": [0.0, 0.0],
        **more,
    }


def owner(place: Location, name: str) -> str | None:
    """The ledger that owns an index or an alias; None if it names none."""
    found = _owners(place, name)
    return found[0]["attempt"] if found else None


def own(place: Location, name: str, owner: str) -> None:
    """Say whose it is from now on. Of several that do so at once one is found to be it afterwards: the first."""
    found = _owners(place, name)
    if not owner or (found and found[0]["attempt"] == owner):
        return
    number = found[0]["part"] + 1 if found else 0
    write(place, [record("owner", name, attempt=owner, part=number)])


def disown(place: Location, name: str) -> None:
    remove(place, f'entry == "owner" and name == {location.text(name)}')


def _owners(place: Location, name: str) -> list[Record]:
    """Newest first."""
    found = read(place, f'entry == "owner" and name == {location.text(name)}', ["attempt", "part", "at"])
    return sorted(found, key=lambda each: (-each["part"], each["at"], each["attempt"]))


@dataclass(frozen=True, slots=True)
class Journal:
    """Numbered from 1: what is said once something else is known has a higher number. Two at once may have the same."""

    place: Location
    physical: str

    def begin(self) -> None:
        """The index was made now."""
        write(self.place, [record("made", self.physical)])

    def fence(self, epoch: int, marks: Sequence[Mark]) -> int:
        """See `DocumentTarget.fence`."""
        self.refuse(epoch, marks)
        seq = self._append("fence", epoch, str(uuid.uuid4()), [mark._replace(outcome=b"") for mark in marks])
        # A server takes two at once.
        self.refuse(epoch, marks)
        return seq

    def refuse(self, epoch: int, marks: Sequence[Mark] = (), *, since: int = 0) -> None:
        """Check epoch and fences. Raises `Fenced` when a newer epoch, or after version `since` a newer fence of a
        slice, was seen.
        """
        newer = self._read(f"{_HEADS} and epoch > {epoch:d}", ["epoch"])
        refuse_epoch(self.physical, epoch, max((each["epoch"] for each in newer), default=0))
        refuse_fences(marks, self._fences(since, sorted({mark.slice_id for mark in marks})))

    @property
    def newest(self) -> int:
        """The newest epoch that was seen; 0 if none."""
        return max((int(each["epoch"]) for each in self._read(_HEADS, ["epoch"])), default=0)

    def epoch_of(self, version: int) -> int:
        """Under which a version was made. One that is not known is long over."""
        found = self._read(f"{_HEADS} and seq == {version:d}", ["epoch"])
        if not found:
            raise Fenced(f"{self.physical}: version {version} is over")
        return int(min(each["epoch"] for each in found))

    def find(self, attempt: str) -> int | None:
        """The version that this attempt made, if it is in."""
        found = self._read(f'entry == "commit" and {_HEAD} and attempt == {location.text(attempt)}', ["seq"])
        return int(found[0]["seq"]) if found else None

    def commit(self, epoch: int, attempt: str, marks: Sequence[Mark]) -> int:
        return self._append("commit", epoch, attempt, marks)

    def committed(self, since: int, slice_ids: Iterable[str]) -> dict[str, bytes]:
        """See `DocumentTarget.committed`. Of several commits of a slice that with the highest fence counts."""
        commits = f'entry == "commit" and seq > {since:d}'
        done = {each["attempt"] for each in self._read(f"{commits} and {_HEAD}", ["attempt"])}
        found: dict[str, bytes] = {}
        for some in portions(sorted(set(slice_ids)), _SLICES):
            fields = ["slice", "fence", "seq", "attempt", "part", "outcome"]
            marks = self._read(f"{commits} and slice in {location.texts(some)}", fields)
            found |= _outcomes([each for each in marks if each["attempt"] in done])
        return found

    def last_change(self) -> float:
        """The time of the last record, in seconds since 1970; 0 without any."""
        found = self._read(_LIFE, ["at"])
        return max((each["at"] for each in found), default=0) / 1000

    def forget(self, keep_seconds: float) -> None:
        """Drop records of epochs that are over, once they are old."""
        newest = self.newest
        before = round((time.time() - keep_seconds) * 1000)
        remove(self.place, f"{self._mine} and {_EVENTS} and epoch < {newest:d} and at < {before:d}")

    def drop(self) -> None:
        remove(self.place, f"{self._mine} and {_LIFE}")

    @property
    def _mine(self) -> str:
        return f"name == {location.text(self.physical)}"

    def _read(self, where: str, fields: Sequence[str]) -> list[Record]:
        return read(self.place, f"{self._mine} and {where}", fields)

    def _fences(self, since: int, slice_ids: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for some in portions(slice_ids, _SLICES):
            where = f"{_EVENTS} and part == 0 and seq > {since:d} and slice in {location.texts(some)}"
            for each in self._read(where, ["slice", "fence"]):
                found[each["slice"]] = max(found.get(each["slice"], each["fence"]), each["fence"])
        return found

    def _append(self, entry: str, epoch: int, attempt: str, marks: Sequence[Mark]) -> int:
        """The head comes last: without it what went before does not count."""
        seq = max((each["seq"] for each in self._read(_HEADS, ["seq"])), default=0) + 1
        made = partial(record, entry, self.physical, attempt=attempt, seq=seq, epoch=epoch)
        records = [
            made(mark=mark, part=part, outcome=outcome)
            for mark in _distinct(marks)
            for part, outcome in enumerate(_parts(mark.outcome))
        ]
        write(self.place, [*records, made()])
        return seq


_EVENTS = 'entry in ["fence", "commit"]'
_LIFE = 'entry in ["made", "fence", "commit"]'
#: The record of a whole fence or commit; those of its marks name their slices.
_HEAD = 'slice == ""'
_HEADS = f"{_EVENTS} and {_HEAD}"


def _distinct(marks: Sequence[Mark]) -> list[Mark]:
    """A slice may be named twice, under several fences."""
    return list({(mark.slice_id, mark.fence): mark for mark in marks if mark.slice_id}.values())


def _parts(outcome: bytes) -> Iterator[str]:
    for at in range(0, max(1, len(outcome)), _PART_BYTES):
        yield base64.b64encode(outcome[at : at + _PART_BYTES]).decode()


def _outcomes(marks: Sequence[Record]) -> Mapping[str, bytes]:
    """Whole outcomes, by slice."""
    parts: dict[str, dict[tuple[int, int, str], list[Record]]] = {}
    for each in marks:
        parts.setdefault(each["slice"], {}).setdefault((each["fence"], each["seq"], each["attempt"]), []).append(each)
    found = {}
    for slice_id, commits in parts.items():
        whole = sorted(commits[max(commits)], key=lambda each: each["part"])
        found[slice_id] = b"".join(base64.b64decode(each["outcome"]) for each in whole)
    return found


def promote(place: Location, alias: str, physical: str | None, epoch: int) -> None:
    """See `DocumentTarget.promote`."""
    if location.collection(alias) in place.call("list_collections"):
        raise UserError(f"{alias!r} is a collection, so it cannot be an alias", where=place.shown, hint="Rename one.")
    last = newest(place, alias)
    if last and last["epoch"] > epoch:
        raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {last['epoch']}")
    if last is None or last["epoch"] < epoch:
        write(place, [record("alias", alias, attempt=physical or "", epoch=epoch)])
    decided = _show_newest(place, alias)
    if decided["epoch"] > epoch:
        raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {decided['epoch']}")
    if decided["attempt"] != (physical or ""):
        serves = decided["attempt"] or "nothing"
        raise Conflict(f"alias {alias!r}: epoch {epoch} serves {serves}, so it cannot serve {physical or 'nothing'}")
    remove(place, f'entry == "alias" and name == {location.text(alias)} and epoch < {epoch:d}')


def served(place: Location, alias: str) -> str | None:
    last = newest(place, alias)
    return (last["attempt"] or None) if last else None


def newest(place: Location, alias: str) -> Record | None:
    """The newest record of an alias; of two of one epoch the first."""
    where = f'entry == "alias" and name == {location.text(alias)}'
    found = read(place, where, ["epoch", "attempt", "at"])
    return min(found, key=lambda each: (-each["epoch"], each["at"], each["attempt"]), default=None)


def _show_newest(place: Location, alias: str) -> Record:
    """Bring the alias to what was promoted last. Of several that do so at once, the last one to look sees it all."""
    shown = None
    while shown != (last := newest(place, alias)):
        assert last is not None
        _show(place, location.collection(alias), last["attempt"])
        shown = last
    assert shown is not None
    return shown


def _show(place: Location, alias: str, physical: str) -> None:
    if not physical:
        try:
            place.call("drop_alias", alias)
        except (Missing, Refused):
            if shown_by(place, alias) is not None:
                raise
        return
    collection = location.collection(physical)
    try:
        place.call("alter_alias", collection, alias)
    except (Missing, Refused):
        try:
            place.call("create_alias", collection, alias)
        except (Missing, Refused):
            # Another promoter was quicker.
            place.call("alter_alias", collection, alias)


def shown_by(place: Location, alias: str) -> str | None:
    """The collection that readers find under an alias, as Milvus calls both."""
    try:
        found: str = place.call("describe_alias", alias)["collection_name"]
    except (Missing, Refused):
        return None
    return found
