"""What is tried again by a server's client: nothing is printed of it but our own sentences."""

from __future__ import annotations

import pytest
import stamina

from instep.servers.calls import _silence, tries


def test_retries_are_not_logged_in_a_librarys_words(caplog: pytest.LogCaptureFixture) -> None:
    calls = []
    stamina.instrumentation.set_on_retry_hooks(None)
    _silence.cache_clear()
    for attempt in tries(OSError, attempts=3, first_wait=0.001, longest_wait=0.001):
        with attempt:
            calls.append(attempt.num)
            if len(calls) < 3:
                raise OSError("away")
    assert calls == [1, 2, 3]
    assert not caplog.records
