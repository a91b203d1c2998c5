"""The component in a real Dagster: loaded from YAML, materialized, checked, killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import instep
from conftest import component, definitions, write, write_rows

NOTE = dg.AssetKey(["notes", "Note"])
DIGEST = dg.AssetKey(["notes", "Digest"])
MATERIALIZE = """\
import pathlib
import sys

import dagster as dg

sys.path.insert(0, "src")
defs = dg.load_from_defs_folder(path_within_project=pathlib.Path.cwd())
dg.materialize(list(defs.assets))
"""


def materialize(defs: dg.Definitions, **options: Any) -> dg.ExecuteInProcessResult:
    made = [*(defs.assets or []), *(defs.asset_checks or [])]
    instance = dg.DagsterInstance.ephemeral()
    return dg.materialize(made, raise_on_error=False, instance=instance, **options)  # type: ignore[arg-type]


def metadata(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> dict[str, Any]:
    (found,) = [each for each in result.get_asset_materialization_events() if each.asset_key == key]
    return {name: each.value for name, each in found.materialization.metadata.items()}


def reason(result: dg.ExecuteInProcessResult) -> str:
    (failed,) = result.get_step_failure_events()
    assert failed.step_failure_data.user_failure_data is not None
    return str(failed.step_failure_data.user_failure_data.description)


def retries(result: dg.ExecuteInProcessResult) -> int:
    return len([each for each in result.all_events if each.event_type is dg.DagsterEventType.STEP_UP_FOR_RETRY])


def test_assets_are_made_of_entities_and_materialized_with_counts_and_instances(tmp_path: Path, project: Path) -> None:
    """The path in YAML is relative to its file."""
    defs = definitions(tmp_path, "  project: ../../../../../notes\n  check: true\n")
    assert defs.resolve_asset_graph().get(DIGEST).parent_keys == {NOTE}
    result = materialize(defs)
    assert result.success
    note, _ = served = instep.load(project).status()
    assert {each.instance for each in served} == {metadata(result, key)["instance"] for key in (NOTE, DIGEST)}
    found = metadata(result, NOTE)
    assert (found["written"], found["rows_written"], found["dagster/row_count"]) == (2, 2, 2)
    assert found["complete_up_to"] * 1_000 == note.watermark
    assert [each.passed for each in result.get_asset_check_evaluations()] == [True, True]
    again = metadata(materialize(defs), NOTE)
    assert (again["state"], again["unchanged"], again["instance"]) == ("UP_TO_DATE", 2, note.instance)


def test_the_component_of_the_documentation_loads(tmp_path: Path, project: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "orchestrators.md").read_text()
    (attributes,) = re.findall(r"^type: instep_dagster.InstepProject\nattributes:\n(.*?)^```", page, re.DOTALL | re.M)
    defs = definitions(tmp_path, attributes.replace("/srv/notes", str(project)))
    assert defs.resolve_asset_graph().get_all_asset_keys() == {NOTE, DIGEST}


def test_a_failed_step_says_what_instep_says(tmp_path: Path, project: Path) -> None:
    write(project, "third", "broken")
    defs = definitions(tmp_path, f"  project: {project}\n  entities: [Note]\n  retries: 1\n  retry_seconds: 0\n")
    result = materialize(defs)
    assert not result.success
    assert "third.md: ValueError: cannot be read" in reason(result)
    assert retries(result) == 0


def test_documents_that_fail_may_be_allowed(tmp_path: Path, project: Path) -> None:
    write(project, "third", "broken")
    result = materialize(definitions(tmp_path, f"  project: {project}\n  entities: [Note]\n  allow_failures: true\n"))
    assert result.success
    assert (metadata(result, NOTE)["failed"], metadata(result, NOTE)["written"]) == (1, 2)


def test_a_ledger_that_is_away_is_worth_a_retry_and_a_mistake_is_not(tmp_path: Path, project: Path) -> None:
    defs = definitions(tmp_path, f"  project: {project}\n  entities: [Note]\n  retries: 1\n  retry_seconds: 0\n")
    declared = (project / "instep.yaml").read_text()
    (project / "instep.yaml").write_text("ledger: postgresql://me@127.0.0.1:9/none\n" + declared)
    away = materialize(defs)
    (project / "instep.yaml").write_text(declared.replace("Note:", "Memo:").replace("[Note]", "[Memo]"))
    mistake = materialize(defs)
    assert "cannot be reached" in reason(away)
    assert "no entity is named 'Note'" in reason(mistake)
    assert (retries(away), retries(mistake)) == (1, 0)


def test_a_check_fails_when_the_target_does_not_hold_what_it_should(tmp_path: Path, project: Path) -> None:
    import lance

    defs = definitions(tmp_path, f"  project: {project}\n  entities: [Note]\n  check: true\n")
    assert materialize(defs).success
    (served,) = instep.load(project).status(["Note"])
    lance.dataset(str(project / ".instep" / "lance" / f"{served.physical}.lance")).delete("true")
    (check,) = materialize(defs, selection=dg.AssetSelection.all_asset_checks()).get_asset_check_evaluations()
    assert (check.passed, check.description) == (False, "2 missing")


def test_namespaces_are_partitions(tmp_path: Path) -> None:
    folder = write_rows(tmp_path)
    defs = definitions(tmp_path, f"  project: {folder}\n")
    ticket = dg.AssetKey(["rows", "Ticket"])
    partitions = defs.resolve_asset_graph().get(ticket).partitions_def
    assert partitions is not None
    assert partitions.get_partition_keys() == ["42/9970", "42/9971"]
    result = materialize(defs, partition_key="42/9970")
    assert metadata(result, ticket)["written"] == 2
    assert [each.state for each in instep.load(folder).status()] == ["Indexed", "NotIndexed"]


def test_an_unknown_entity_fails_the_load(tmp_path: Path, project: Path) -> None:
    with pytest.raises(Exception, match=r"defs\.yaml") as raised:
        definitions(tmp_path, f"  project: {project}\n  entities: [Nota]\n")
    assert "no entity is named 'Nota'" in str(raised.value.__cause__)


def test_a_run_that_is_ended_stops_and_the_next_resumes_its_job(tmp_path: Path, project: Path) -> None:
    write(project, "second", "slow")
    root = component(tmp_path, f"  project: {project}\n  entities: [Note]\n")
    command = [sys.executable, "-c", MATERIALIZE]
    first = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 120
    while not (project / "parsing").exists():
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.05)
    (project / "fast").touch()
    first.send_signal(signal.SIGINT)
    log, _ = first.communicate(timeout=45)  # Not after the minute that the document takes.
    assert first.returncode != 0, log
    (stopped,) = instep.load(project).jobs()
    assert stopped.state == "STOPPED", log
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (job,) = instep.load(project).jobs()
    assert (job.id, job.state, job.counts.written) == (stopped.id, "COMPLETED", 2)


def test_the_component_is_listed_by_dg(tmp_path: Path, project: Path) -> None:
    root = component(tmp_path, f"  project: {project}\n")
    dg_command = Path(sys.executable).parent / "dg"
    found, known = (
        subprocess.run(
            [dg_command, "list", *what],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root / "src")},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for what in (("defs",), ("components",))
    )
    assert "notes/Note" in found
    assert "notes/Digest" in found
    assert "instep_dagster.InstepProject" in known
