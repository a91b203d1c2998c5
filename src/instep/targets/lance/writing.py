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
        outputs: dict[str, FragmentOutput] = {}
        try:
            for kind, rows in changes:
                spec = spec_of(self.specs, kind)
                good = checked_rows(spec, arrow_schema(spec), rows)
                if good.num_rows:
                    if kind not in outputs:
                        outputs[kind] = FragmentOutput(self.place, self.place.open(spec.table(self.physical)))
                    outputs[kind].add(with_keys(good, spec.key))
            written = {kind: output.finish() for kind, output in outputs.items()}
        except BaseException:
            for output in outputs.values():
                output.abandon()
            raise
        return json.dumps({"fragments": written}).encode()
