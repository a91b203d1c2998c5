"""Pending queues: what is offered, leased, acknowledged and verified."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CONSUMING = ("tests/jobs/test_queue_consuming.py",)
_SQLITE = ("tests/queues/test_sqlite.py",)
_COMMANDS = ("tests/cli/test_queue_commands.py",)

MUTANTS = [
    Mutant(
        "a key that was covered in between is given out",
        "queues/consumers.py",
        "            for key, each in leased.items()\n            if key in pending\n        ]",
        "            for key, each in leased.items()\n        ]",
        _CONSUMING,
    ),
    Mutant(
        "more keys are given than were asked for",
        "queues/consumers.py",
        "some = free[first : first + room - len(given)]",
        "some = free[first:]",
        _CONSUMING,
    ),
    Mutant(
        "a key that a consumer has leased is acknowledged by others",
        "queues/consumers.py",
        "refused |= _leased(ledger, queue, [key for key, fence in fences.items() if fence is None",
        "refused |= _leased(ledger, queue, [key for key, fence in fences.items() if fence is not None",
        _CONSUMING,
    ),
    Mutant(
        "the ledger forgets a key before the queue has it covered",
        "queues/consumers.py",
        "        store.acknowledge(covered)\n",
        "",
        _CONSUMING,
    ),
    Mutant(
        "keys outside of the queue are acknowledged",
        "queues/consumers.py",
        "for key in keys if not store.spec.keys.holds(key)}",
        "for key in keys if not store.spec.keys.holds(key - 1)}",
        _CONSUMING,
    ),
    Mutant(
        "a batch of any size is leased",
        "queues/consumers.py",
        "    if not 1 <= wanted.limit <= MAX_BATCH:\n",
        "    if wanted.limit < 1:\n",
        _CONSUMING,
    ),
    Mutant(
        "where nothing else is to be done a retry waits all the same",
        "queues/consumers.py",
        "    if not fresh and not retries and not mixed:\n        return giving.retries(1)\n",
        "",
        _CONSUMING,
    ),
    Mutant(
        "what is covered and was parked is still listed",
        "queues/consumers.py",
        "found |= {key: hold for key, hold in page.items() if key in pending}",
        "found |= page",
        _CONSUMING,
    ),
    Mutant(
        "an offer that is not settled is given",
        "queues/engines/sqlite/queries.py",
        '        wanted.append(_settled("_offer.event_time", ask.settled))\n',
        '        wanted.append("_offer.event_time >= 0")\n',
        _SQLITE,
    ),
    Mutant(
        "keys of other participants come too",
        "queues/engines/sqlite/queries.py",
        '        wanted.append(f"_offer.key IN ({concerned})")\n',
        "",
        _SQLITE,
    ),
    Mutant(
        "an offer that is false is given",
        "queues/engines/sqlite/store.py",
        "for key, version, time, false in rows if not false]",
        "for key, version, time, false in rows]",
        _SQLITE,
    ),
    Mutant(
        "an offer that was made again is withdrawn by who saw the old one",
        "queues/engines/sqlite/store.py",
        "WHERE key = ? AND version <= ?",
        "WHERE key = ? AND version >= ?",
        _SQLITE,
    ),
    Mutant(
        "surplus offers are not counted",
        "queues/engines/sqlite/store.py",
        '_named(connection, f"{offered} EXCEPT {pending}")',
        '_named(connection, f"{offered} EXCEPT {offered}")',
        _SQLITE,
    ),
    Mutant(
        "a table without an index on the key is taken",
        "queues/engines/sqlite/layout.py",
        "    if not rowid and not indexes:\n",
        "    if rowid and not indexes and not key:\n",
        _SQLITE,
    ),
    Mutant(
        "the time of an offer is that of the last change",
        "queues/engines/sqlite/layout.py",
        'return [f"UPDATE {layout.offers} SET event_time = {layout.earliest(key)} WHERE key = {key}"]',
        "return []",
        _SQLITE,
    ),
    Mutant(
        "what is missing in a queue is repaired and not said",
        "queues/verify.py",
        "repaired = max(0, differed - suspects.count)",
        "repaired = max(0, suspects.count - differed)",
        ("tests/jobs/test_queue_ranges.py", "tests/cli/test_queue_commands.py"),
    ),
    Mutant(
        "lines that are refused exit with 0",
        "cli/queue_keys.py",
        "    if refused:\n        raise typer.Exit(ExitCode.FAILURES)\n",
        "",
        _COMMANDS,
    ),
    Mutant(
        "what a line says of its failure is what the command says",
        "cli/queue_keys.py",
        "each.error or error",
        "error or each.error",
        _COMMANDS,
    ),
    Mutant(
        "all parked keys are tried again, whichever were named",
        "cli/queue_keys.py",
        "found.unpark(keys or None)",
        "found.unpark(None)",
        _COMMANDS,
    ),
    Mutant(
        "parked keys are tried again when none was named",
        "cli/queue_keys.py",
        "    if bool(keys) == everything:\n",
        "    if keys and everything:\n",
        _COMMANDS,
    ),
    Mutant(
        "keys that are given by command have no lease",
        "cli/queue_keys.py",
        "lease=None if lease is None else timedelta(milliseconds=lease)",
        "lease=None",
        _COMMANDS,
    ),
    Mutant(
        "keys of all participants are given by command",
        "cli/queue_keys.py",
        "            participants=whom,\n            legacy=legacy,\n",
        "            legacy=legacy,\n",
        _COMMANDS,
    ),
    Mutant(
        "a queue that differs exits with 0",
        "cli/queue.py",
        "    if not equal:\n        raise typer.Exit(ExitCode.CHANGES)\n",
        "",
        _COMMANDS,
    ),
    Mutant(
        "a queue is not mended by who asks for it",
        "cli/queue.py",
        "found.verify(repair=repair,",
        "found.verify(repair=False,",
        _COMMANDS,
    ),
    Mutant(
        "a queue is dropped unasked",
        "cli/queue.py",
        "    if not confirmed:\n",
        "    if not name:\n",
        _COMMANDS,
    ),
    Mutant(
        "a switch back is one forward",
        "cli/queue.py",
        "found.switch(back=back)",
        "found.switch(back=False)",
        _COMMANDS,
    ),
]
