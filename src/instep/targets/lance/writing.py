"""A task's side for tables: fragments of rows with the numbers of their keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from instep.targets.lance.keys import with_keys
from instep.targets.lance.location import Location
from instep.targets.lance.staging import FragmentOutput
from instep.targets.table_target import TableChange, TableSpec, arrow_schema, checked_rows, spec_of


@dataclass
class LanceTableWriter:
    """See `TableWriter`."""

    place: Location
    physical: str
    specs: Sequence[TableSpec]

    def stage(self, changes: Iterator[TableChange]) -> bytes:
        outputs: dict[tuple[str, bool], FragmentOutput] = {}
        try:
            for kind, rows, moved in changes:
                spec = spec_of(self.specs, kind)
                good = checked_rows(spec, arrow_schema(spec), rows)
                if good.num_rows:
                    if (kind, moved) not in outputs:
                        head = self.place.open(spec.table(self.physical))
                        outputs[kind, moved] = FragmentOutput(self.place, head)
                    outputs[kind, moved].add(with_keys(good, spec.key))
            written = {each: output.finish() for each, output in outputs.items()}
        except BaseException:
            for output in outputs.values():
                output.abandon()
            raise
        return json.dumps(
            {
                name: {kind: each for (kind, is_moved), each in written.items() if is_moved == moved}
                for name, moved in (("fragments", False), ("moved", True))
            }
        ).encode()


def staged_fragments(staged: Sequence[bytes]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """What tasks wrote, by kind: rows, and rows that moved."""
    found: dict[str, dict[str, list[str]]] = {"fragments": {}, "moved": {}}
    for each in staged:
        parts = json.loads(each)
        for name, kinds in found.items():
            for kind, fragments in parts.get(name, {}).items():
                kinds.setdefault(kind, []).extend(fragments)
    return found["fragments"], found["moved"]
