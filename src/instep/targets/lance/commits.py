"""Commits as compare-and-swap, and what earlier commits say.

Every change by Instep is a `Merge` of all fragments: of two that started at the same version one
fails (plain appends and updates do not conflict with each other, so they could not fence), while
building an index does not get in the way. What a commit says about itself (epoch, attempt, slices
with fences, outcomes) travels in its transaction; what must outlive old transactions (the epochs,
the next fragment id) in the metadata of the schema, so every version carries it.

Several partitions may write one dataset, each with epochs of its own: they are told apart by their `scope`.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import msgspec

from instep.domain.waves import Mark
from instep.errors import Conflict, Fenced, InstepError, Transient, Unknown
from instep.targets.journal import refuse_fences
from instep.targets.lance.location import Location, Preempted, is_missing, lance_library

_EPOCH = "instep.epoch"
_ATTEMPT = "instep.attempt"
_MARKS = "instep.marks"
_OUTCOMES = "instep.outcomes"
_DATASET = "instep.dataset"
#: Which ledger made it.
OWNER = "instep.owner"
_SINCE = "instep.since"
_EPOCHS = "instep.epochs"

#: How many rows only remember what was deleted; datasets of documents have none, and do not say it.
DELETIONS = "instep.deletions"
_FRAGMENT = "instep.fragment"
_BESIDE = "instep.beside"


class Changed(NamedTuple):
    """The fragments after a change, and those to add, numbered from the first id that is free; and how many more rows
    there are that only remember deletions.
    """

    fragments: list[Any]
    added: list[Any]
    deletions: int = 0


#: What a commit makes of the dataset's present state, given the first fragment id that is free.
Change: TypeAlias = "Callable[[Any, int], Changed]"

#: Given whose a dataset is, whose it will be. Raises `NotOurs` if it may not be that.
Owned: TypeAlias = "Callable[[str], str]"

#: One of the committers always wins, so this many losses in a row mean that something else is wrong.
_TRIES = 200


class Reign(NamedTuple):
    """The present epoch of one partition, the version at which it began, and the last one that it made."""

    epoch: int
    since: int
    last: int


@dataclass(frozen=True, slots=True)
class State:
    """The state in every version of a dataset: its writers by scope, in `fragment` the smallest fragment id never used
    (indexes name rows by fragment id), and in `deletions` how many rows only remember deletions, if that is counted.
    """

    dataset: str
    owner: str
    reigns: Mapping[str, Reign]
    fragment: int
    deletions: int | None

    @classmethod
    def of(cls, dataset: Any) -> State:
        stored = dataset.schema_metadata
        highest = max((each.fragment_id for each in dataset.get_fragments()), default=-1)
        fragment = max(highest + 1, int(stored.get(_FRAGMENT, 0)))
        deletions = int(stored[DELETIONS]) if DELETIONS in stored else None
        return cls(stored.get(_DATASET, ""), stored.get(OWNER, ""), _reigns(stored), fragment, deletions)

    def reign(self, scope: str) -> Reign:
        return self.reigns.get(scope, Reign(0, 0, 0))

    @property
    def since(self) -> int:
        """The version at which the youngest epoch began."""
        return max((each.since for each in self.reigns.values()), default=0)

    def needed_since(self, recent: int) -> int:
        """The first version whose commits may still be asked for: those of the youngest epoch, and of all that wrote
        something in or after version `recent`.
        """
        return min((each.since for each in self.reigns.values() if each.last >= recent), default=self.since)

    def under(self, scope: str, epoch: int, version: int) -> State:
        """The state after a commit under `epoch` that makes `version`."""
        before = self.reign(scope)
        since = before.since if before.since and before.epoch == epoch else version
        return replace(self, reigns={**self.reigns, scope: Reign(epoch, since, version)})

    def with_change(self, change: Changed) -> State:
        deletions = None if self.deletions is None else self.deletions + change.deletions
        return replace(self, fragment=self.fragment + len(change.added), deletions=deletions)

    def metadata(self) -> dict[str, str]:
        return {
            _DATASET: self.dataset,
            **({OWNER: self.owner} if self.owner else {}),
            _EPOCHS: json.dumps(self.reigns, separators=(",", ":")),
            _FRAGMENT: str(self.fragment),
            **({} if self.deletions is None else {DELETIONS: str(self.deletions)}),
        }


def _reigns(stored: Mapping[str, str]) -> dict[str, Reign]:
    if _EPOCHS in stored:
        return {scope: Reign(*each) for scope, each in json.loads(stored[_EPOCHS]).items()}
    # Made when a dataset was one partition's.
    since = int(stored.get(_SINCE, 0))
    return {"": Reign(int(stored[_EPOCH]), since, since)} if _EPOCH in stored else {}


class Note(NamedTuple):
    """The properties of one commit."""

    attempt: str
    fences: Mapping[str, int]


class HistoryGone(Exception):
    """Some transaction was cleaned away, so its properties cannot be known."""


def fence(
    place: Location,
    physical: str,
    epoch: int,
    marks: Sequence[Mark],
    *,
    scope: str = "",
    beside: Mapping[str, int] | None = None,
    owned: Owned | None = None,
) -> int:
    """An empty commit that says the epoch and the fences of re-claimed slices; returns its version. `beside`: versions
    of other datasets that belong to it. `owned`: says for whom, and raises `NotOurs` if it is another's.
    """
    properties = {_EPOCH: str(epoch), _MARKS: _encode_marks(marks), _BESIDE: json.dumps(beside or {})}
    for tried in range(_TRIES):
        head = place.open(physical)
        state = State.of(head)
        if owned is not None:
            state = replace(state, owner=owned(state.owner))
        _refuse_older_epoch(state, scope, epoch, physical)
        if marks:
            _refuse_older_fences(_notes(head, max(state.reign(scope).since - 1, 0)), marks)
        try:
            with place.understood():
                landed = _land(head, fragments_of(head), state.under(scope, epoch, head.version + 1), properties)
        except Preempted:
            time.sleep(_pause(tried))
            continue
        return int(landed.version)
    raise Transient(f"{physical}: gave up fencing after {_TRIES} conflicts")


def newest_epoch(place: Location, physical: str, *, scope: str = "") -> int:
    """The newest epoch that the dataset has seen of a partition; 0 if none."""
    return State.of(place.open(physical)).reign(scope).epoch


def claim(place: Location, physical: str, owned: Owned) -> None:
    """An empty commit that says for whom the dataset is from now on."""
    for tried in range(_TRIES):
        head = place.open(physical)
        state = State.of(head)
        claimed = replace(state, owner=owned(state.owner))
        if claimed == state:
            return
        try:
            with place.understood():
                _land(head, fragments_of(head), claimed, {})
        except Preempted:
            time.sleep(_pause(tried))
        else:
            return
    raise Transient(f"{physical}: gave up claiming after {_TRIES} conflicts")


def commit(
    place: Location,
    physical: str,
    *,
    base: int,
    epoch: int,
    attempt: str,
    change: Change,
    marks: Sequence[Mark],
    scope: str = "",
    beside: Mapping[str, int] | None = None,
) -> int:
    """Commit, or find that it is in already; returns a version that has it."""
    properties = {
        _EPOCH: str(epoch),
        _ATTEMPT: attempt,
        _MARKS: _encode_marks(marks),
        _BESIDE: json.dumps(beside or {}),
        # Bytes become base64; of a million documents they are a hundred megabytes.
        _OUTCOMES: msgspec.json.encode({mark.slice_id: mark.outcome for mark in marks}).decode(),
    }
    for tried in range(_TRIES):
        head = place.open(physical)
        if _is_in(head, physical, base=base, epoch=epoch, attempt=attempt, marks=marks, scope=scope):
            return int(head.version)
        state = State.of(head).under(scope, epoch, head.version + 1)
        with place.understood():
            changed = change(head, state.fragment)
        try:
            with place.understood():
                landed = _land(head, changed.fragments + changed.added, state.with_change(changed), properties)
        except Preempted:
            time.sleep(_pause(tried))
            continue
        except InstepError as error:
            return _arrived(place, physical, base, attempt, error)
        return int(landed.version)
    raise Conflict(f"{physical}: gave up committing after {_TRIES} conflicts")


def is_in(
    place: Location, physical: str, *, base: int, epoch: int, attempt: str, marks: Sequence[Mark], scope: str = ""
) -> int | None:
    """A version that has this attempt; None if it would be made now. Raises `Fenced` if it would be refused."""
    head = place.open(physical)
    there = _is_in(head, physical, base=base, epoch=epoch, attempt=attempt, marks=marks, scope=scope)
    return int(head.version) if there else None


def versions_beside(place: Location, physical: str, version: int) -> dict[str, int]:
    """The versions of other datasets that the commit of this version (or our last one before) names."""
    head = place.open(physical)
    try:
        with place.understood():
            for earlier in range(min(version, head.version), 1, -1):
                found: dict[str, int] = json.loads(_properties(head, earlier).get(_BESIDE, "{}"))
                if found:
                    return found
    except HistoryGone:
        raise Fenced(f"{physical}: version {version} was cleaned away; this work was taken over") from None
    return {}


def committed(
    place: Location, physical: str, since: int, slice_ids: Iterable[str], *, surely: bool = True
) -> dict[str, bytes]:
    """Outcomes by slice of the commits after `since`; the latest commit of a slice counts.

    Raises `Unknown` when some of these commits were cleaned away: absence would prove nothing. Not `surely`: what is
    absent is written again without harm.
    """
    wanted = set(slice_ids)
    found: dict[str, bytes] = {}
    head = place.open(physical)
    with place.understood():
        for version, note in enumerate(_notes(head, since), start=since + 1):
            if note is None and surely:
                raise Unknown(f"{physical}: commits since version {since} were cleaned away; a rebuild settles it")
            if note and note.attempt and not wanted.isdisjoint(note.fences):
                outcomes = json.loads(_properties(head, version)[_OUTCOMES])
                found |= {each: base64.b64decode(outcomes[each]) for each in wanted & outcomes.keys()}
    return found


def _is_in(head: Any, physical: str, *, base: int, epoch: int, attempt: str, marks: Sequence[Mark], scope: str) -> bool:
    notes = list(_notes(head, base))
    if _names(notes, attempt):
        return True
    _refuse_older_epoch(State.of(head), scope, epoch, physical)
    if None in notes:
        raise Fenced(f"{physical}: commits since version {base} were cleaned away; read and write again")
    _refuse_older_fences(notes, marks)
    return False


def _names(notes: Iterable[Note | None], attempt: str) -> bool:
    return any(note and note.attempt == attempt for note in notes)


def _arrived(place: Location, physical: str, base: int, attempt: str, error: InstepError) -> int:
    """The version that has an attempt whose commit failed, if it is in nevertheless; else the error
    again, or `Unknown` if it cannot be told.
    """
    try:
        head = place.open(physical)
        with place.understood():
            arrived = _names(_notes(head, base), attempt)
    except InstepError:
        raise Unknown(f"{physical}: it is not known whether attempt {attempt} was committed: {error}") from None
    if not arrived:
        raise error
    return int(head.version)


def _refuse_older_epoch(state: State, scope: str, epoch: int, physical: str) -> None:
    newest = state.reign(scope).epoch
    if newest > epoch:
        raise Fenced(f"{physical}: epoch {epoch} was superseded by epoch {newest}")


def _refuse_older_fences(notes: Iterable[Note | None], marks: Sequence[Mark]) -> None:
    for note in notes:
        if note:
            refuse_fences(marks, note.fences)


def fragments_of(dataset: Any) -> list[Any]:
    return [each.metadata for each in dataset.get_fragments()]


def _land(head: Any, fragments: Sequence[Any], state: State, properties: Mapping[str, str]) -> Any:
    lance = lance_library()
    from lance.schema import LanceSchema

    # Field ids come out the same: the schema never changes after an index is created.
    metadata = {**head.schema_metadata, **state.metadata()}
    schema = LanceSchema.from_pyarrow(head.schema.with_metadata(metadata))
    operation = lance.LanceOperation.Merge(list(fragments), schema)
    transaction = lance.Transaction(head.version, operation, transaction_properties=dict(properties))
    return lance.LanceDataset.commit(head, transaction)


def _encode_marks(marks: Sequence[Mark]) -> str:
    highest = {mark.slice_id: mark.fence for mark in sorted(marks, key=lambda each: each.fence)}
    return json.dumps(list(highest.items()), separators=(",", ":"))


def _pause(tried: int) -> float:
    """Seconds; differs between processes so that they do not run in step."""
    return min(0.05, 0.001 * (tried + 1)) * (0.5 + os.getpid() % 16 / 16)


def _notes(head: Any, base: int) -> Iterator[Note | None]:
    """Notes of the versions after `base` up to `head`; None for one that was cleaned away."""
    for version in range(base + 1, head.version + 1):
        try:
            yield _note(head, version)
        except HistoryGone:
            yield None


def _note(head: Any, version: int) -> Note:
    stored = _properties(head, version)
    return Note(stored.get(_ATTEMPT, ""), dict(json.loads(stored.get(_MARKS, "[]"))))


def _properties(head: Any, version: int) -> Mapping[str, str]:
    try:
        transaction = head.read_transaction(version)
    except TypeError:
        # pylance 14 cannot build the Python value of a compaction that rewrote indexes; no commit
        # of ours is one (they are merges).
        return {}
    except OSError as error:
        if is_missing(error):
            raise HistoryGone from None
        raise
    if transaction is None:
        raise HistoryGone
    return transaction.transaction_properties or {}
