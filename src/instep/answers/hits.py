"""Hits of a search: as a table in a notebook, in Arrow and in pandas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING

from instep.answers import shown
from instep.answers.answer import as_json
from instep.answers.answer_list import Answers
from instep.answers.search import Hit
from instep.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class Hits(Answers[Hit]):
    """Hits, best first. A notebook shows them as a table, with the words that match marked."""

    def _repr_html_(self) -> str:
        if not self:
            return "<em>nothing found</em>"
        names = ["score", "title", "source_uri", "snippet"]
        return shown.html(
            names,
            (
                [f"{hit.score:.4g}", escape(hit.title or ""), escape(hit.source_uri), _marked(hit.snippet, hit.marks)]
                for hit in self
            ),
        )

    def to_arrow(self) -> pa.Table:
        """A row for each hit, a column for each of its fields; declared columns, which differ between entities, are one
        text in JSON.
        """
        import pyarrow as pa

        rows = [{**each, "columns": json.dumps(each["columns"], ensure_ascii=False)} for each in as_json(list(self))]
        return pa.Table.from_pylist(rows, schema=_schema())

    def to_pandas(self) -> pd.DataFrame:
        """The same as a data frame. Needs pandas."""
        if find_spec("pandas") is None:
            raise UserError("a data frame needs pandas", hint="pip install 'instep[notebook]'")
        return self.to_arrow().to_pandas()


def _schema() -> pa.Schema:
    import pyarrow as pa

    texts = ("entity", "mode", "score_kind", "document_id", "chunk_id", "source_uri", "title", "text", "snippet")
    types: dict[str, pa.DataType] = {
        **dict.fromkeys((*texts, "instance", "columns"), pa.string()),
        "weak": pa.bool_(),
        "score": pa.float64(),
        "chunk_index": pa.int64(),
        "marks": pa.list_(pa.list_(pa.int64())),
        "watermark": pa.timestamp("ms", tz="UTC"),
    }
    return pa.schema([(name, types[name]) for name in Hit.model_fields])


def _marked(text: str, marks: Sequence[tuple[int, int]]) -> str:
    """The text in HTML; marks are in order, and none is within another."""
    parts, place = [], 0
    for start, end in marks:
        parts += [escape(text[place:start]), f"<mark>{escape(text[start:end])}</mark>"]
        place = end
    return "".join([*parts, escape(text[place:])])
