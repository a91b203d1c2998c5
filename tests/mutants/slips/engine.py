"""Engines: the choice, task assignment and errors."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CHOICE = ("tests/engine/test_choice_and_tasks.py",)
_DEAL = ("tests/domain/test_task_assignment.py",)
_INLINE = ("tests/engine/test_inline.py",)

MUTANTS = [
    Mutant(
        "tasks of Spark are to reach a target that is in this process",
        "pipeline/engine/choice.py",
        '    if in_process:\n        return chosen("inline", "its target is in this process")\n',
        "",
        _CHOICE,
    ),
    Mutant(
        "what the project says of the engine is not asked",
        "pipeline/engine/choice.py",
        '    if configured != "auto":\n        return chosen(configured, f"the project says `engine: {configured}`")\n'
        "    if warm:\n",
        '    if configured == "auto":\n        return chosen(configured, f"the project says `engine: {configured}`")\n'
        "    if warm:\n",
        _CHOICE,
    ),
    Mutant(
        "Spark is taken where it is slower",
        "pipeline/engine/choice.py",
        'return chosen("inline", estimate) if inline < spark else',
        'return chosen("inline", estimate) if inline > spark else',
        _CHOICE,
    ),
    Mutant(
        "all cores of a cluster are taken to be this machine's",
        "pipeline/engine/choice.py",
        "    if match is None:\n        return CLUSTER_CORES\n",
        "    if match is None:\n        return _cores_here()\n",
        _CHOICE,
    ),
    Mutant(
        "one document has two writers",
        "domain/waves.py",
        "changes=whole.changes[start:stop]",
        "changes=whole.changes[start : stop + 1]",
        _DEAL,
    ),
    Mutant(
        "a slice is always read by one task",
        "domain/waves.py",
        "    if first == last or len(whole.changes) < 2:\n",
        "    if True:\n",
        _DEAL,
    ),
    Mutant(
        "the tasks of a wave are as many as its rounds, whatever cores there are",
        "domain/planning.py",
        "min(pace.cores * rounds, ",
        "min(rounds, ",
        ("tests/domain/test_claiming.py",),
    ),
    Mutant(
        "an engine is estimated by what another one was measured at, though it was itself",
        "domain/planning.py",
        "key=lambda each: each.engine != engine",
        "key=lambda each: each.engine == engine",
        _CHOICE,
    ),
    Mutant(
        "what took two cores is taken to take sixteen",
        "domain/planning.py",
        "(usual.work_per_second * each.cores / usual.cores)",
        "usual.work_per_second",
        _CHOICE,
    ),
    Mutant(
        "a wave that is complete counts twice",
        "ledger/jobs.py",
        ".where(job_workers.c.job_id.in_(sorted(job_ids)), PROCESSING)",
        ".where(job_workers.c.job_id.in_(sorted(job_ids)))",
        ("tests/ledger/test_sqlite.py",),
    ),
    Mutant(
        "what an attempt told that has failed is seen by others",
        "jobs/wave_progress.py",
        "        if self._is_in_ledger:\n            self.tell_ledger(claims, 0)\n",
        "        return\n",
        ("tests/jobs/test_outages.py",),
    ),
    Mutant(
        "an error of one task is not that of the wave",
        "pipeline/engine/inline.py",
        "    if failed:\n        raise failed[0]\n",
        "",
        _INLINE,
    ),
    Mutant(
        "an error of the reader is told as the writer's",
        "pipeline/engine/pipelining.py",
        "            if kept and kept[0] is not error:\n                raise kept[0] from error\n",
        "",
        ("tests/engine",),
    ),
    Mutant(
        "progress counts documents twice",
        "pipeline/engine/inline.py",
        "tally.add(sum(len(part.changes) for part in self._slices) - counted)",
        "tally.add(sum(len(part.changes) for part in self._slices))",
        _INLINE,
    ),
    Mutant(
        "a transform that sorts is let through",
        "pipeline/engine/transforming.py",
        '    ("Sort", "sort"),\n',
        "",
        ("tests/engine/test_plancheck.py",),
    ),
    Mutant(
        "a slice that had two tasks is whole by the first of them",
        "pipeline/outcomes.py",
        "        whole[outcome.slice_id] = _together(whole[outcome.slice_id], outcome)\n",
        "        whole.setdefault(outcome.slice_id, outcome)\n",
        ("tests/engine/test_row_outcomes.py",),
    ),
    Mutant(
        "documents that vanished from a table between listing and reading are lost from the counts",
        "pipeline/outcomes.py",
        "SliceOutcome(outcome.slice_id, outcome.fence, Counts(read=missing, skipped=missing))",
        "SliceOutcome(outcome.slice_id, outcome.fence, Counts())",
        ("tests/engine/test_row_outcomes.py",),
    ),
    Mutant(
        "code that does not reach a task is the fault of what is in its slice",
        "error_transport.py",
        '        if "Traceback (most" not in text and _NOT_HANDED_OVER.search(text):\n',
        "        if False:\n",
        ("tests/engine/test_failures.py",),
    ),
    Mutant(
        "what one Connect session is sent is all the others', too",
        "pipeline/engine/sparkapi.py",
        '    if session.conf.get(_ISOLATION, "true") != "false":\n',
        '    if session.conf.get(_ISOLATION, "true") == "false":\n',
        ("tests/engine/test_spark_connect.py::test_files_of_a_session_that_has_ended_are_asked_of_no_other",),
    ),
]
