"""The declared project."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PROJECT = ("tests/project",)

MUTANTS = [
    Mutant(
        "a key behind its scheme is no secret",
        "project/secrets.py",
        'if "://" not in value:',
        'if "://" in value:',
        ("tests/project/test_secrets.py",),
    ),
    Mutant(
        "a password in an address of a setting that is no secret is none",
        "project/secrets.py",
        "yield from (*_PASSWORD.findall(value), *_TOKEN.findall(value))",
        "yield from _TOKEN.findall(value)",
        ("tests/project/test_secrets.py",),
    ),
    Mutant(
        "two entities may differ in case only",
        "project/entities.py",
        "        if name.lower() in seen:\n            # They share",
        "        if name in seen:\n            # They share",
        _PROJECT,
    ),
    Mutant(
        "an entity may have the name of another one's edges",
        "project/entities.py",
        "        if not is_own_name(name):",
        "        if not is_entity_name(name):",
        _PROJECT,
    ),
    Mutant(
        "an edge may lead to a label that no entity makes",
        "project/entities.py",
        "if end.label not in known:",
        "if not known:",
        _PROJECT,
    ),
    Mutant(
        "of several targets the first is taken unasked",
        "project/entities.py",
        "        if len(targets) > 1:\n",
        "        if not targets:\n",
        _PROJECT,
    ),
    Mutant(
        "tables may go into a target that takes documents alone",
        "project/entities.py",
        "        if found not in fitting:\n",
        "        if not fitting:\n",
        _PROJECT,
    ),
    Mutant(
        "a store of one process may be used by tasks of Spark",
        "project/entities.py",
        '        if engine == "spark":\n'
        '            raise problem("conflict", f"`engine` is spark, and {alone}", path=path)\n',
        "",
        _PROJECT,
    ),
    Mutant(
        "a circle of entities that wait for each other is not found",
        "project/entities.py",
        "            elif following in path:",
        "            elif following == path[-1]:",
        _PROJECT,
    ),
    Mutant(
        "a global entity may wait for namespaces",
        "project/entities.py",
        "entities[each].namespaced and not entity.namespaced",
        "entities[each].namespaced and entity.namespaced",
        _PROJECT,
    ),
    Mutant(
        "an entity may be in one place twice",
        "project/targets.py",
        "        if place in names:\n",
        "        if name in names:\n",
        _PROJECT,
    ),
    Mutant(
        "who depends on an entity with several targets waits for the first",
        "project/entities.py",
        "above = tuple(each for dependency in entity.depends_on for each in names[dependency])",
        "above = tuple(names[dependency][0] for dependency in entity.depends_on)",
        _PROJECT,
    ),
    Mutant(
        "a server of ClickHouse needs no staging",
        "project/targets.py",
        "if self.staging is None and is_clickhouse_server(self.uri):",
        "if self.staging is None and not self.uri:",
        _PROJECT,
    ),
    Mutant(
        "the address of a target is shown with its password",
        "project/targets.py",
        '    type: Literal["postgres"] = "postgres"\n'
        '    """`postgres`: for documents (with the extension pgvector) and tables."""\n'
        "    uri: Text = Field(repr=False)\n",
        '    type: Literal["postgres"] = "postgres"\n'
        '    """`postgres`: for documents (with the extension pgvector) and tables."""\n'
        "    uri: Text\n",
        _PROJECT,
    ),
    Mutant(
        "a queue settles by no time at all",
        "project/queues.py",
        "if self.settle and self.source.event_time is None:",
        "if not self.settle and self.source.event_time is None:",
        _PROJECT,
    ),
    Mutant(
        "keys of a queue come oldest first when newest is asked for",
        "project/queues.py",
        'self.order == "newest",',
        'self.order == "oldest",',
        _PROJECT,
    ),
    Mutant(
        "the label of a queue's database says its password",
        "project/queues.py",
        "f\"{scheme}://{rest.rpartition('@')[2]}\"",
        'f"{scheme}://{rest}"',
        _PROJECT,
    ),
    Mutant(
        "documents are found by the words of their readers",
        "project/search.py",
        "        allowed.remove(entity.readers)\n",
        "        pass\n",
        ("tests/api/test_readers.py",),
    ),
]
