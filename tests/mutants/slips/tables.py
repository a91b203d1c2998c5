"""Rows of tables: which slice each is in, what fits, what is written and counted."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ROUTING = ("tests/tables/test_routing.py",)
_WRITING = ("tests/tables/test_writing.py",)

MUTANTS = [
    Mutant(
        "a row that is in no slice of the wave is in the first",
        "pipeline/tables/routing.py",
        "np.full(len(np.unique(numbers)) + 1, NOWHERE, np.int64)",
        "np.zeros(len(np.unique(numbers)) + 1, np.int64)",
        _ROUTING,
    ),
    Mutant(
        "a null is greater than any value",
        "pipeline/tables/routing.py",
        "        ranks[values.is_null().to_numpy(zero_copy_only=False)] = 0\n",
        "        ranks[values.is_null().to_numpy(zero_copy_only=False)] = ranks.max()\n",
        _ROUTING,
    ),
    Mutant(
        "a row whose column does not fit any more is routed as it comes",
        "pipeline/tables/routing.py",
        "fits = found.to_pylist() == ordered  # Arrow makes",
        "fits = len(found) == len(ordered)  # Arrow makes",
        _ROUTING,
    ),
    Mutant(
        "a row without a key is written",
        "pipeline/tables/writing.py",
        "            if values[column].null_count:\n                for row in",
        "            if values[column].null_count == len(values[column]):\n                for row in",
        _WRITING,
    ),
    Mutant(
        "a row to delete fails for a column that is not needed",
        "pipeline/tables/writing.py",
        "if column.name in needed or not deleted[row]:",
        "if column.name in needed or row >= 0:",
        _WRITING,
    ),
    Mutant(
        "rows that other queues' keys name are written too",
        "pipeline/tables/writing.py",
        "            wanted &= _true(pc.is_in(keys, self._only))\n",
        "            wanted |= _true(pc.is_in(keys, self._only))\n",
        _WRITING,
    ),
    Mutant(
        "deleted rows are counted as written",
        "pipeline/tables/writing.py",
        '        self._tally.count("deleted", rows.places[deleted & good])\n',
        "",
        _WRITING,
    ),
    Mutant(
        "a first build stages the rows that are deleted",
        "pipeline/tables/writing.py",
        "if self._writer.first and gone.any():",
        "if not self._writer.first and gone.any():",
        _WRITING,
    ),
    Mutant(
        "what failed before and does not now stays a failure",
        "pipeline/tables/writing.py",
        "            self._tally.remove(int(rows.places[row]), str(ids[row]))\n",
        "            continue\n",
        _WRITING,
    ),
    Mutant(
        "an edge without an end is written",
        "pipeline/tables/writing.py",
        "for name in (*table.start, *table.end) if",
        "for name in (*table.start,) if",
        _WRITING,
    ),
    Mutant(
        "of values that do not fit the first alone is found",
        "pipeline/tables/values.py",
        "                stretches += [(start + half, length - half), (start, half)]\n",
        "                stretches += [(start, half)]\n",
        ("tests/tables/test_fitting.py",),
    ),
    Mutant(
        "too many failures end nothing",
        "pipeline/tables/routing.py",
        "            if self._failed > MAX_FAILURES:\n",
        "            if self._failed < 0:\n",
        ("tests/tables",),
    ),
    Mutant(
        "rows that failed are counted as written",
        "pipeline/tables/routing.py",
        'written = self.counts["read"] - self.counts["deleted"] - self.counts["failed"]',
        'written = self.counts["read"] - self.counts["deleted"]',
        _WRITING,
    ),
    Mutant(
        "a row of an index stays that only a later file has deleted",
        "entities/tables/reconciling.py",
        "        there.leave_out(each)",
        "        pass",
        ("tests/e2e/tables/test_reconcile.py",),
    ),
    Mutant(
        "a row of an index stays that only a later file has moved away",
        "entities/tables/key_sides.py",
        "scope = (setup.rows.scope, setup.ref.scope.path) if moves and setup.rows.scope else None",
        "scope = None",
        ("tests/e2e/tables/test_reconcile.py",),
    ),
    Mutant(
        "a rebuild deletes a row of which the index has a later version than several files",
        "entities/tables/promotion_checks.py",
        "lacking = not_replaced(setup, ledger, part)",
        "lacking = 0",
        ("tests/e2e/tables/test_windows.py",),
    ),
    Mutant(
        "a rebuild that holds few of the rows that were written is served",
        "entities/tables/promotion_checks.py",
        "    if stored < _fewest(part, ledger, written):\n        return _few_keys(written, stored)\n",
        "",
        ("tests/e2e/tables/test_windows.py", "tests/e2e/tables/test_failures.py"),
    ),
    Mutant(
        "rows that are gone from the source are left out unguarded",
        "entities/tables/promotion_checks.py",
        "    if allowed or not setup.guard.refuses(lost, served, before):",
        "    if allowed or setup.guard.refuses(lost, served, before):",
        ("tests/e2e/tables/test_windows.py", "tests/e2e/tables/test_emptying.py"),
    ),
    Mutant(
        "rows without a watermark are not reported where all are read",
        "entities/tables/changes.py",
        "            *([] if whole_files or not windows else without_watermark(setup, selection)),\n",
        "",
        ("tests/e2e/tables/test_windows.py::test_rows_without_a_watermark_are_read_when_one_has_changed",),
    ),
]
