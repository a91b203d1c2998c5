"""The dialect is what differs: the rest of the contract is run by `make soak`."""

from __future__ import annotations

import pytest

#: Where a word of the dialect is said.
DIALECT = (
    "test_contents_show_duplicates",
    "test_every_type_and_every_name_comes_back_as_it_was",
    "test_rows_of_other_instances_are_swept",
    "test_rows_of_documents_are_given_back_whole",
    "test_hybrid_search_ranks_hits_of_both_first",
    "test_the_longest_vectors_are_those_that_the_server_says",
    "test_the_server_is_recognized_by_its_answer",
    "test_travels_pickled",
    "test_updates_and_deletes_of_one_commit",
    "test_vector_search_finds_the_nearest",
    "test_vectors_that_cannot_be_searched_for",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "targets/elasticsearch/" in item.nodeid and not item.name.startswith(DIALECT):
            item.add_marker(pytest.mark.long)
