"""Each target: commits, fences, aliases, and what they hold."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LANCE = ("tests/targets/test_lance.py",)
_ALIASES = ("tests/targets/test_lance_aliases.py",)
_POSTGRES = ("tests/targets/postgres/test_documents.py",)
_CLICKHOUSE = ("tests/targets/test_clickhouse.py",)
_QDRANT = ("tests/targets/test_qdrant.py", "tests/targets/test_qdrant_server.py")
_MILVUS = ("tests/targets/milvus/test_contract.py",)

MUTANTS = [
    Mutant(
        "Lance: a commit under an epoch that is over is taken",
        "targets/lance/commits.py",
        "    _refuse_older_epoch(State.of(head), scope, epoch, physical)\n    if None in notes:",
        "    if None in notes:",
        _LANCE,
    ),
    Mutant(
        "Lance: a commit that came in twice is made twice",
        "targets/lance/commits.py",
        "    if _names(notes, attempt):\n        return True\n",
        "",
        _LANCE,
    ),
    Mutant(
        "Lance: a fence says nothing of slices that were claimed again",
        "targets/lance/commits.py",
        "    properties = {_EPOCH: str(epoch), _MARKS: _encode_marks(marks), _BESIDE",
        "    properties = {_EPOCH: str(epoch), _MARKS: _encode_marks(()), _BESIDE",
        _LANCE,
    ),
    Mutant(
        "Lance: what was committed before the base is found",
        "targets/lance/commits.py",
        "for version, note in enumerate(_notes(head, since), start=since + 1):",
        "for version, note in enumerate(_notes(head, 0), start=1):",
        _LANCE,
    ),
    Mutant(
        "Lance: an alias is moved by who was superseded",
        "targets/lance/aliases.py",
        "        if before.epoch > epoch:\n",
        "        if before.epoch > epoch + 1:\n",
        (*_ALIASES, *_LANCE),
    ),
    Mutant(
        "Lance: one epoch serves two indexes",
        "targets/lance/aliases.py",
        "            if before.physical != physical:\n",
        "            if before.physical is None and physical:\n",
        (*_ALIASES, *_LANCE),
    ),
    Mutant(
        "Lance: files of old promotions stay",
        "targets/lance/aliases.py",
        "        if number < newest:\n            place.remove(_file(alias, number))\n",
        "        if number < 0:\n            place.remove(_file(alias, number))\n",
        _ALIASES,
    ),
    Mutant(
        "Lance: what is served is a leftover",
        "targets/ownership.py",
        "if alias_owns(alias, each) and each != served]",
        "if alias_owns(alias, each)]",
        _LANCE,
    ),
    Mutant(
        "Lance: what another ledger has made is a leftover",
        "targets/ownership.py",
        "if self.mine(each) and self._idle(each) >= idle_seconds]",
        "if self._idle(each) >= idle_seconds]",
        _LANCE,
    ),
    Mutant(
        "Lance: an index that is being written is a leftover",
        "targets/ownership.py",
        "if self.mine(each) and self._idle(each) >= idle_seconds]",
        "if self.mine(each)]",
        _LANCE,
    ),
    Mutant(
        "Lance: an index of other dimensions is taken",
        "targets/document_target.py",
        "    if width != dimensions:\n",
        "    if width < 1:\n",
        _LANCE,
    ),
    Mutant(
        "Lance: rows of documents beyond the first lookup are not found",
        "targets/lance/staging.py",
        "for at in range(0, len(wanted), _LOOKUP)]",
        "for at in range(0, min(len(wanted), _LOOKUP), _LOOKUP)]",
        _LANCE,
    ),
    Mutant(
        "Lance: rows that another writer deleted are deleted again",
        "targets/lance/deletions.py",
        "    if after.num_deletions != before.num_deletions + len(rows):\n"
        '        raise Conflict(f"{physical}: rows were deleted by another process; read them again")\n',
        "",
        _LANCE,
    ),
    Mutant(
        "Lance: a row is found by the last of its chunks",
        "targets/lance/searching.py",
        'rows = sorted(found.to_pylist(), key=lambda each: each["chunk_index"])',
        'rows = sorted(found.to_pylist(), key=lambda each: -each["chunk_index"])',
        _LANCE,
    ),
    Mutant(
        "PostgreSQL: rows of commits that came later are compared with",
        "targets/postgres/chunk_writing.py",
        "        later = _later(session, self.index, self.base)\n        compared",
        "        later: list[int] = []\n        compared",
        _POSTGRES,
    ),
    Mutant(
        "PostgreSQL: a commit whose rows were replaced in between lands",
        "targets/postgres/chunk_writing.py",
        "        if found != len(portion):\n            raise _replaced(index)\n",
        "",
        _POSTGRES,
    ),
    Mutant(
        "PostgreSQL: documents to remove go with what came later",
        "targets/postgres/chunk_writing.py",
        "    if found != sum(documents.values()):\n        raise _replaced(index)\n",
        "",
        _POSTGRES,
    ),
    Mutant(
        "PostgreSQL: texts with a NUL are sent",
        "targets/postgres/chunk_writing.py",
        "            if kind == STRING and name in rows.schema.names:",
        "            if kind == STRING and name not in rows.schema.names:",
        _POSTGRES,
    ),
    Mutant(
        "PostgreSQL: a search finds no words",
        "targets/postgres/searching.py",
        "return hits(_by_text(session, index, text, limit))",
        "return hits(())",
        _POSTGRES,
    ),
    Mutant(
        "ClickHouse: who was superseded writes",
        "targets/clickhouse/journal.py",
        "(scope = {scope:String} AND epoch > {writer_epoch:UInt64}) OR ",
        "(scope = {scope:String} AND epoch > {writer_epoch:UInt64} + 1) OR ",
        _CLICKHOUSE,
    ),
    Mutant(
        "ClickHouse: the oldest outcome of a slice counts",
        "targets/clickhouse/journal.py",
        "argMax(outcome, (fence, seq))",
        "argMin(outcome, (fence, seq))",
        _CLICKHOUSE,
    ),
    Mutant(
        "ClickHouse: records of epochs that go on are dropped",
        "targets/clickhouse/journal.py",
        '            f"AND (scope, epoch) NOT IN (SELECT scope, max(epoch) FROM {self._table} GROUP BY scope)"\n',
        "",
        _CLICKHOUSE,
    ),
    Mutant(
        "ClickHouse: views of kinds that are gone stay",
        "targets/clickhouse/journal.py",
        '            session.command(f"DROP VIEW IF EXISTS {view}")',
        "            continue",
        _CLICKHOUSE,
    ),
    Mutant(
        "ClickHouse: an older promotion overrides a newer one",
        "targets/clickhouse/journal.py",
        "    if last and last.epoch > promotion.epoch:\n",
        "    if last and last.epoch > promotion.epoch + 1:\n",
        _CLICKHOUSE,
    ),
    Mutant(
        "Qdrant: who was superseded changes points",
        "targets/journal.py",
        "if head is None or self._newest(head) > epoch:",
        "if head is None:",
        _QDRANT,
    ),
    Mutant(
        "Qdrant: points of a newer epoch are removed",
        "targets/qdrant/writing.py",
        "self._collections.delete(self._physical, replace(where, at_most={VERSION: self._epoch}))",
        "self._collections.delete(self._physical, where)",
        _QDRANT,
    ),
    Mutant(
        "Qdrant: points of a newer epoch are written over",
        "targets/qdrant/writing.py",
        "self._collections.upsert(self._physical, points_of(rows), only_if=not_newer)",
        "self._collections.upsert(self._physical, points_of(rows))",
        _QDRANT,
    ),
    Mutant(
        "Qdrant: rows of a document beyond the first page are not found",
        "targets/qdrant/collections.py",
        "        after = page.next\n        if after is None:\n            return\n",
        "        return\n",
        _QDRANT,
    ),
    Mutant(
        "Qdrant: a chunk that was written again is removed",
        "targets/qdrant/writing.py",
        'rest = stale["chunk_id"].filter(pc.invert(pc.or_(whole, written))).to_pylist()',
        'rest = stale["chunk_id"].filter(pc.invert(whole)).to_pylist()',
        _QDRANT,
    ),
    Mutant(
        "Milvus: of several promotions the first counts",
        "targets/milvus/journal.py",
        '(-each["epoch"], each["at"], each["attempt"])',
        '(each["at"], each["attempt"])',
        ("tests/targets/milvus/test_serving.py", "tests/targets/milvus/test_contract.py"),
    ),
    Mutant(
        "Milvus: a search finds no words",
        "targets/milvus/searching.py",
        'asked.ranked((sign * each["distance"], each["entity"]) for each in found)',
        "[]",
        _MILVUS,
    ),
    Mutant(
        "a name with two dots in a row names an index",
        "targets/ownership.py",
        'if not _NAME.match(name) or ".." in name:',
        "if not _NAME.match(name):",
        ("tests/targets/test_names.py",),
    ),
]
