"""Of each contract the part that may differ where the same kind of target is a server, or is dear: it is always run,
all of it when targets have changed.
"""

from __future__ import annotations

from instep.testing.table_merging import MergingContract
from instep.testing.table_rows import OnTables
from instep.testing.table_serving import TableServingContract
from instep.testing.table_target import TableTargetContract
from instep.testing.table_writers import TableWritersContract
from instep.testing.target import TargetContract
from instep.testing.target_columns import ColumnsContract
from instep.testing.target_filters import FiltersContract
from instep.testing.target_rows import OnOneIndex
from instep.testing.target_searching import SearchingContract
from instep.testing.target_serving import ServingContract
from instep.testing.target_writers import WritersContract


class ShortContract(OnOneIndex):
    """For documents."""

    rounds = 2
    upkeep = ("indexed",)
    examples = 3
    filtered = FiltersContract.filtered
    asked = FiltersContract.asked
    test_a_filter_finds_the_rows = FiltersContract.test_a_filter_finds_the_rows_that_it_holds_for
    test_rows_are_chosen_before_they_are_ranked = FiltersContract.test_rows_are_chosen_before_they_are_ranked
    test_facets_count = FiltersContract.test_facets_count_the_values_of_what_is_found
    pytest_generate_tests = SearchingContract.pytest_generate_tests
    found = SearchingContract.found
    library = SearchingContract.library
    staged = ServingContract.staged
    test_concurrent_committers_all_land = WritersContract.test_concurrent_committers_all_land
    test_large_outcomes = WritersContract.test_large_outcomes
    test_a_zombie_of_an_older_epoch = WritersContract.test_a_zombie_of_an_older_epoch_is_refused_and_not_visible
    test_a_zombie_that_stages_late = WritersContract.test_a_zombie_that_stages_late_changes_nothing_of_a_newer_epoch
    test_an_index_made_again = TargetContract.test_an_index_dropped_and_recreated_forgets_its_commits
    test_updates_and_deletes_of_one_commit = TargetContract.test_updates_and_deletes_of_one_commit
    test_written_rows_are_read_back = TargetContract.test_written_rows_are_read_back_as_a_multiset
    test_rows_are_given_back_whole = TargetContract.test_rows_of_documents_are_given_back_whole
    test_existing_tells_where_each_row_stands = TargetContract.test_existing_tells_where_each_row_stands
    test_another_place = TargetContract.test_a_row_gets_another_place_without_its_vector
    test_travels_pickled = TargetContract.test_travels_pickled
    with_columns = ColumnsContract.with_columns
    put_rows = ColumnsContract.put_rows
    stored = ColumnsContract.stored
    test_rows_that_are_told_anew = ColumnsContract.test_rows_that_are_told_anew_keep_their_vectors
    test_rows_are_read_whole = ColumnsContract.test_rows_are_read_whole_and_their_readers_become_fewer
    test_a_column_that_is_not_there = ColumnsContract.test_a_column_that_is_not_there_is_no_null
    test_values_of_columns_are_read_back = ColumnsContract.test_values_of_columns_are_read_back
    test_a_trial_of_hosts = TargetContract.test_a_trial_counts_a_row_of_each_host_and_leaves_nothing
    test_vector_search_finds_the_nearest = SearchingContract.test_vector_search_finds_the_nearest
    test_typed_queries_are_data = SearchingContract.test_typed_queries_are_data
    test_every_rare_word = SearchingContract.test_every_rare_word_is_found_wherever_it_stands
    test_own_vectors = SearchingContract.test_a_chunk_is_the_first_hit_of_its_own_vector
    test_phrases = SearchingContract.test_a_phrase_in_quotes_is_found_as_it_is
    test_scripts_without_spaces = SearchingContract.test_scripts_without_spaces_are_searched
    test_the_parts_of_names_are_words = SearchingContract.test_the_parts_of_names_and_paths_are_words
    test_promote_is_idempotent_and_moves = ServingContract.test_promote_is_idempotent_and_moves
    test_an_older_epoch_never_overrides = ServingContract.test_an_older_epoch_never_overrides_a_newer_one


class ShortTableContract(OnTables):
    """For tables."""

    odd_rows = TableTargetContract.odd_rows
    builds = TableServingContract.builds
    test_any_type_and_any_name = TableTargetContract.test_every_type_and_every_name_comes_back_as_it_was
    test_travels_pickled = TableTargetContract.test_travels_pickled
    test_a_trial_of_hosts = TableTargetContract.test_a_trial_counts_a_row_of_each_host_and_leaves_nothing
    test_random_histories = MergingContract.test_random_histories_end_as_the_model_says
    test_large_outcomes = TableWritersContract.test_many_slices_and_large_outcomes
    test_a_zombie_of_an_older_epoch = TableWritersContract.test_a_zombie_of_an_older_epoch_is_refused_and_not_visible
    test_an_older_epoch_never_overrides = TableServingContract.test_an_older_epoch_never_overrides_a_newer_one
