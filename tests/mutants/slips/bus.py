"""Requests, deliveries and status keys, in the ledger and over NATS."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SQLITE = ("tests/bus/test_sqlite.py",)
_NATS = ("tests/bus/test_nats.py", "tests/bus/test_nats_tokens.py")
_DISPATCH = ("tests/cli/test_bus_commands.py",)

MUTANTS = [
    Mutant(
        "a handler that comes late is not told what was asked before",
        "ledger/request_rows.py",
        "asked = select(bus_requests).where(bus_requests.c.kind == kind.value)",
        "asked = select(bus_requests).where(bus_requests.c.kind != kind.value)",
        _SQLITE,
    ),
    Mutant(
        "of several requests of a scope the first counts",
        "bus/slot_bus.py",
        "key=lambda each: (each.scope, each.watermark)):",
        "key=lambda each: (each.scope, -each.watermark)):",
        _SQLITE,
    ),
    Mutant(
        "a status key is overwritten though it has changed",
        "bus/slot_bus.py",
        "    if wanted is not None and found != wanted:",
        "    if wanted is not None and found > wanted + 1:",
        _NATS,
    ),
    Mutant(
        "the limit of a group is not applied",
        "ledger/request_rows.py",
        "    if policy.group and not _has_room(tx, policy):\n        return None\n",
        "",
        _SQLITE,
    ),
    Mutant(
        "a group's room is that of what ran out, too",
        "ledger/request_rows.py",
        "bus_slots.c.working_group == policy.group, _ahead(tx, policy))",
        "bus_slots.c.working_group == policy.group)",
        _SQLITE,
    ),
    Mutant(
        "what has been due for longest is taken last",
        "ledger/request_rows.py",
        "first = _due(tx, name, policy).order_by(bus_slots.c.due_at, bus_slots.c.ref).limit(1)",
        "first = _due(tx, name, policy).order_by(bus_slots.c.due_at.desc(), bus_slots.c.ref).limit(1)",
        _SQLITE,
    ),
    Mutant(
        "dead letters of others are listed",
        "ledger/request_rows.py",
        "of = [] if name is None else [bus_slots.c.consumer == name]",
        "of = []",
        _SQLITE,
    ),
    Mutant(
        "an older request replaces a newer one in the ledger",
        "ledger/request_rows.py",
        "if before.get(str(each.scope), -1) < each.watermark]",
        "if before.get(str(each.scope), -1) != each.watermark]",
        _SQLITE,
    ),
    Mutant(
        "NATS: a newer request is overtaken by an older one",
        "bus/nats/nats_bus.py",
        "            if watermark >= request.watermark:\n                return\n",
        "            if watermark == request.watermark:\n                return\n",
        _NATS,
    ),
    Mutant(
        "NATS: a permit has no fence",
        "bus/nats/consumer.py",
        'permit = f"{ref}#{fence}"',
        'permit = f"{ref}"',
        _NATS,
    ),
    Mutant(
        "NATS: room in a group is kept by who found nothing to do",
        "bus/nats/consumer.py",
        "        await self._slots.leave(self._policy, permit)\n        await self._put_back(message, after)\n",
        "        await self._put_back(message, after)\n",
        _NATS,
    ),
    Mutant(
        "NATS: the limit of a group is one more",
        "bus/nats/slots.py",
        "entered = permit in permits or len(permits) < policy.limit",
        "entered = permit in permits or len(permits) <= policy.limit",
        _NATS,
    ),
    Mutant(
        "NATS: permits hold for ever",
        "bus/nats/slots.py",
        "return {each: until for each, until in permits.items() if now < until}",
        "return permits",
        _NATS,
    ),
    Mutant(
        "a request of another form is taken",
        "domain/requests.py",
        '        if name not in ("type", *names):\n',
        '        if name == "":\n',
        ("tests/domain/test_requests.py",),
    ),
    Mutant(
        "entities of every kind are said to be asked",
        "requests/dispatch.py",
        "if kind is Kind.of(scope)]",
        "if kind]",
        _DISPATCH,
    ),
    Mutant(
        "with a namespace that is named all the others are asked for",
        "requests/dispatch.py",
        "    if named or globals_too:\n        return",
        "    if globals_too:\n        return",
        _DISPATCH,
    ),
    Mutant(
        "what is asked for may be in the future",
        "requests/dispatch.py",
        "    if watermark > now:\n",
        "    if watermark < 0:\n",
        _DISPATCH,
    ),
]
