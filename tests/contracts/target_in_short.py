"""The part of `TargetContract` that may differ on a server from the same kind of target in this process."""

from __future__ import annotations

from tests.contracts.target import TargetContract
from tests.contracts.target_rows import OnOneIndex
from tests.contracts.target_writers import WritersContract


class ShortContract(OnOneIndex):
    test_concurrent_committers_all_land = WritersContract.test_concurrent_committers_all_land
    test_large_outcomes = WritersContract.test_large_outcomes
    test_a_zombie_of_an_older_epoch = WritersContract.test_a_zombie_of_an_older_epoch_is_refused_and_not_visible
    test_a_zombie_that_stages_late = WritersContract.test_a_zombie_that_stages_late_changes_nothing_of_a_newer_epoch
    test_an_index_made_again = TargetContract.test_an_index_dropped_and_recreated_forgets_its_commits
    test_updates_and_deletes_of_one_commit = TargetContract.test_updates_and_deletes_of_one_commit
    test_what_is_written_is_read_back = TargetContract.test_written_rows_are_read_back_as_a_multiset
    test_rows_are_given_back_whole = TargetContract.test_rows_of_documents_are_given_back_whole
    test_travels_pickled = TargetContract.test_travels_pickled
