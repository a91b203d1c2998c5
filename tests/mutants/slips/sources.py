"""Files, feeds and tables."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FILES = ("tests/sources/test_files.py",)
_FEED = ("tests/sources/test_feed.py",)

_NET = ("tests/sources/tables/test_net_changes.py",)
_NODES = ("tests/e2e/lakes/test_nodes.py",)
_LAKES = ("tests/e2e/lakes/test_following.py",)
_TOPICS = ("tests/e2e/kafka/test_topics.py",)

MUTANTS = [
    Mutant(
        "a job takes the same share of each partition of a topic, whatever its timestamps",
        "sources/kafka.py",
        "return found if found.waiting(start) else end.within(start, most)",
        "return end.within(start, most)",
        _TOPICS,
    ),
    Mutant(
        "the failure of a message stays though its document is well",
        "sources/topic.py",
        "        if message.key is not None:\n            with suppress",
        "        if message.key is None:\n            with suppress",
        _TOPICS,
    ),
    Mutant(
        "the failure of a message stays when it has left the topic",
        "entities/documents/topics.py",
        "int(offset) < first.get(int(partition), 0)",
        "int(offset) < 0",
        _TOPICS,
    ),
    Mutant(
        "a run takes messages that came after it began",
        "sources/topic.py",
        "state.end if until is None else state.end.up_to(until, start)",
        "state.end",
        _TOPICS,
    ),
    Mutant(
        "the first change of a row counts, not the last",
        "sources/tables/lakes.py",
        "np.maximum.at(latest, codes, numbers)",
        "latest[codes[::-1]] = numbers[::-1]",
        _LAKES,
    ),
    Mutant(
        "a row that was deleted and came back in one commit stays deleted",
        "sources/tables/delta_rows.py",
        "return pc.add(doubled, there",
        "return pc.subtract(doubled, there",
        _LAKES,
    ),
    Mutant(
        "what a version deletes is left in the index",
        "entities/documents/versions.py",
        ".chunks, pa.array(found.deleted, pa.string())], pa.string())",
        ".chunks], pa.string())",
        _LAKES,
    ),
    Mutant(
        "a checkpoint forgets the version of its table",
        "domain/seen.py",
        "version = () if self.version is None else (str(self.version),)",
        "version = ()",
        _LAKES,
    ),
    Mutant(
        "another table at the same place is followed",
        "entities/documents/versions.py",
        "    if before.table != now.table:\n",
        "    if False:\n",
        ("tests/e2e/lakes/test_delta.py",),
    ),
    Mutant(
        "a row whose key is there again counts as gone",
        "sources/tables/net_changes.py",
        "(total < 0) & ~np.isin(of_key, of_key[total > 0])",
        "total < 0",
        _NET,
    ),
    Mutant(
        "a row that is met twice is written twice",
        "sources/tables/net_changes.py",
        "self._open[places[at]] = False",
        "pass",
        _NET,
    ),
    Mutant(
        "a build reads whatever version its table has by then",
        "entities/tables/setup.py",
        "versions=first.versions,",
        "versions=self.source.of(Selection()).versions if isinstance(self.source, LakeTable) else None,",
        _NODES,
    ),
    Mutant(
        "what a run wrote that has not ended is taken for what was there before it",
        "entities/tables/versions.py",
        "if setup.target.epoch(checkpoint.physical) > ",
        "if False and setup.target.epoch(checkpoint.physical) > ",
        _NODES,
    ),
    Mutant(
        "a folder that cannot be listed is passed over without a word",
        "sources/local_files.py",
        'problem(f"{shown(folder)}: {reason(error)}")',
        "continue",
        _FILES,
    ),
    Mutant(
        "what is excluded is listed",
        "sources/local_files.py",
        "left_out = (wanted and not wanted(relative)) or (unwanted and unwanted(relative))",
        "left_out = wanted and not wanted(relative)",
        _FILES,
    ),
    Mutant(
        "a folder that a later pattern takes back is left out",
        "sources/local_files.py",
        "prunes = None if exclude.negated else unwanted",
        "prunes = unwanted",
        _FILES,
    ),
    Mutant(
        "a pipe is read for a file",
        "sources/local_files.py",
        "return status if of(status.st_mode) else None",
        "return status",
        _FILES,
    ),
    Mutant(
        "a file that changes while it is read is taken as it comes",
        "sources/local_files.py",
        "if len(data) == before.st_size and _same(before, os.fstat(descriptor)):",
        "if data or not before.st_size:",
        _FILES,
    ),
    Mutant(
        "a file of exactly the most bytes is too large",
        "sources/local_files.py",
        "    if size > max_bytes:\n",
        "    if size >= max_bytes:\n",
        (*_FILES, *_FEED),
    ),
    Mutant(
        "a file under two roots is two documents",
        "sources/files.py",
        "if not place or each[0] != documents[place - 1][0]]",
        "if each]",
        _FILES,
    ),
    Mutant(
        "files are listed in the order of the folder",
        "sources/files.py",
        "        documents.sort(key=itemgetter(0))\n        documents = [",
        "        documents = [",
        _FILES,
    ),
    Mutant(
        "the first pattern that matches decides",
        "sources/globs.py",
        "self._groups = groups[::-1]",
        "self._groups = groups",
        _FILES,
    ),
    Mutant(
        "a URL's root owns what begins with its name",
        "sources/url_files.py",
        'uri == self.base or uri.startswith(self.base.rstrip("/") + "/")',
        "uri.startswith(self.base)",
        _FILES,
    ),
    Mutant(
        "a line of a feed that is no event deletes nothing, and no word of it",
        "sources/feed.py",
        '            self._report(f"{_Place(line.number, 0, 0, file).shown}: {error}")\n',
        "",
        _FEED,
    ),
    Mutant(
        "a feed deletes what a malformed line might have put",
        "sources/feed.py",
        "if isinstance(line, int) and line > self._last_malformed]",
        "if isinstance(line, int)]",
        _FEED,
    ),
    Mutant(
        "a feed that does not name a document deletes it",
        "sources/feed.py",
        "return Listing(documents, self.problems, deleted, exhaustive=self._exhaustive)",
        "return Listing(documents, self.problems, deleted)",
        _FEED,
    ),
    Mutant(
        "the last line of a feed is read while it is written",
        "sources/feed.py",
        "        elif not whole(data):\n            return\n",
        "",
        _FEED,
    ),
    Mutant(
        "files of a feed are read in any order",
        "sources/feed.py",
        "for uri in sorted(found, key=lambda uri: _order(found[uri], uri))]",
        "for uri in found]",
        _FEED,
    ),
    Mutant(
        "a line that another document has now is read for the old one",
        "sources/feed.py",
        "if told is None or told.version is None or told.uri != document.uri:",
        "if told is None or told.version is None:",
        _FEED,
    ),
    Mutant(
        "a row group whose every row has the asked scope is passed over",
        "sources/tables/parquet.py",
        "and most >= scope.path",
        "and most > scope.path",
        ("tests/sources/tables/test_parquet.py",),
    ),
    Mutant(
        "without statistics nothing is later",
        "sources/tables/parquet.py",
        "            if latest is None:\n                unknown = True\n",
        "            if latest is None:\n                pass\n",
        ("tests/sources/tables/test_parquet.py",),
    ),
    Mutant(
        "a watermark in nanoseconds is rounded down",
        "sources/tables/parquet.py",
        "    times, parts = unit\n    return -(-raw * times // parts)",
        "    times, parts = unit\n    return raw * times // parts",
        ("tests/sources/tables/test_parquet.py",),
    ),
    Mutant(
        "nulls of a watermark are in a window that has a floor",
        "sources/tables/parquet.py",
        "found.has_null_count) or found.null_count:",
        "found.has_null_count):",
        ("tests/sources/tables/test_parquet.py",),
    ),
]
