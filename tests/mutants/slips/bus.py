"""Messages and status keys, in the ledger and over NATS."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_NATS = ("tests/bus/test_nats.py",)
_MESSAGES = ("tests/bus/test_nats_messages.py",)

MUTANTS = [
    Mutant(
        "a status key is overwritten though it has changed",
        "bus/bus.py",
        "    if wanted is not None and found != wanted:",
        "    if wanted is not None and found > wanted + 1:",
        _NATS,
    ),
    Mutant(
        "in the ledger, a status key is overwritten though it has changed",
        "ledger/status_keys.py",
        "        if revision is not None and found != revision:",
        "        if revision is not None and found > revision + 1:",
        ("tests/bus/test_sqlite.py",),
    ),
    Mutant(
        "a request of another form is taken",
        "domain/requests.py",
        '        if name not in ("type", *names):\n',
        '        if name == "":\n',
        ("tests/domain/test_requests.py",),
    ),
    Mutant(
        "a message is acknowledged before it is stored",
        "requests/messages.py",
        "                except InstepError:\n                    inbox.give_back(message)\n",
        "                except InstepError:\n                    inbox.ack(message)\n",
        _MESSAGES,
    ),
    Mutant(
        "a message that comes again is a want again",
        "requests/messages.py",
        'id = str(uuid5(NAMESPACE_URL, f"instep:{message.id} {ref.entity}"))',
        'id = str(uuid5(NAMESPACE_URL, f"instep:{message.token} {ref.entity}"))',
        _MESSAGES,
    ),
    Mutant(
        "a message of a namespace that was deleted is done",
        "requests/messages.py",
        "        if wanted and inbox.withdrawn(message):\n",
        "        if wanted and not message.id:\n",
        _MESSAGES,
    ),
    Mutant(
        "what a message cannot say is asked for",
        "requests/messages.py",
        "        if request.scope != message.scope:\n",
        "        if request.scope == message.id:\n",
        _MESSAGES,
    ),
    Mutant(
        "keys that begin alike are taken for those below a key",
        "ledger/status_keys.py",
        'below = func.substr(bus_status.c.key, 1, len(prefix) + 1) == f"{prefix}."',
        "below = func.substr(bus_status.c.key, 1, len(prefix)) == prefix",
        ("tests/bus/test_sqlite.py",),
    ),
    Mutant(
        "NATS: messages for namespaces in one that is deleted stay",
        "bus/nats/nats_bus.py",
        'for pattern in (subject, f"{subject}.>"):',
        "for pattern in (subject,):",
        _MESSAGES,
    ),
    Mutant(
        "NATS: what was stored is delivered again",
        "bus/nats/inbox.py",
        'self._connection.run(self._say(message, b"+ACK"))',
        'self._connection.run(self._say(message, b"-NAK"))',
        _MESSAGES,
    ),
]
