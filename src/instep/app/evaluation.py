"""The part of the Python API that measures how well searches find."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from instep.answers.answer_list import Answers
from instep.container import Container
from instep.entities.generations import checked_generation
from instep.project import Project

if TYPE_CHECKING:
    from instep.answers.quality import Quality
    from instep.targets.document_target import SearchMode


class Evaluation:
    """The method of `app.Instep` that measures how well searches find."""

    project: Project

    def evaluate(
        self,
        queries: str | os.PathLike[str],
        judgements: str | os.PathLike[str] | None = None,
        *,
        mode: SearchMode | None = None,
        entities: Iterable[str] | None = None,
        generation: str | None = None,
        target: str | None = None,
    ) -> Answers[Quality]:
        """Measure how well judged queries are answered: nDCG@10, recall and MRR of the served index, in each mode or in
        one, and of another generation beside it. docs/quality.md describes the files.
        """
        from instep.answers.quality import evaluate
        from instep.answers.search import MODES, checked_mode, in_one_target
        from instep.entities.documents.quality import read_queries

        chosen = checked_mode(mode)
        modes = MODES if chosen is None else (chosen,)
        asked = read_queries(Path(queries), None if judgements is None else Path(judgements))
        container = Container(self.project)
        with closing(container.ledger(read_only=True)) as ledger:
            setups = in_one_target(container.documents(entities), target)
            return Answers(evaluate(setups, ledger, asked, modes=modes, generation=checked_generation(generation)))
