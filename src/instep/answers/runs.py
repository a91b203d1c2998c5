"""Results of a run, one for each partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from instep.answers.answer_list import Answers
from instep.jobs.entity_result import EntityResult

if TYPE_CHECKING:
    from instep.answers.results import Run


class Runs(Answers[EntityResult]):
    """Results of a run, one for each partition. A notebook shows them as a table."""

    def answers(self) -> Iterable[Run]:
        from instep.answers.results import run_answer

        return map(run_answer, self)
