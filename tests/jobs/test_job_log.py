"""The log of a job that was really done."""

from __future__ import annotations

from pathlib import Path

from instep.domain.jobs import Phase
from tests.jobs.projects import home


def test_a_job_tells_its_phases_in_their_order(tmp_path: Path) -> None:
    place = home(tmp_path)
    first = place.run()
    place.change(3, "more")
    for result in (first, place.run()):
        assert result.job_id is not None
        lines = place.open().job_log(result.job_id)[::-1]
        phases = [Phase(each.kind) for each in lines if each.kind in set(Phase)]
        assert phases == [Phase.INDEXES, Phase.CHECKS, Phase.PROMOTION, Phase.SERVED]
        assert {each.ref for each in lines if each.kind in set(Phase)} == {"Document@global"}
        assert [each.number for each in lines] == sorted(each.number for each in lines)
