"""HTTP: who may ask, what is answered, and the page."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ACCESS = ("tests/api/test_access.py",)
_PROBLEMS = ("tests/api/test_problems.py",)

MUTANTS = [
    Mutant(
        "a change needs no token on this machine",
        "api/access.py",
        "        if asked.method not in _READS:\n            return True\n",
        "        if asked.method not in _READS:\n            return not self.loopback\n",
        _ACCESS,
    ),
    Mutant(
        "reads are open to other machines",
        "api/access.py",
        "return not self.loopback and is_guarded(asked.path)",
        "return self.loopback and is_guarded(asked.path)",
        _ACCESS,
    ),
    Mutant(
        "a name that was pointed at this machine is answered to",
        "api/access.py",
        "if self.loopback and name not in _LOOPBACK:",
        "if not self.loopback and name not in _LOOPBACK:",
        _ACCESS,
    ),
    Mutant(
        "pages of other sites may ask",
        "api/access.py",
        "if asked.origin is not None and urlsplit_host(asked.origin)",
        "if asked.origin is None and urlsplit_host(asked.origin or '')",
        _ACCESS,
    ),
    Mutant(
        "a token may have anything behind it",
        "api/access.py",
        "any(secrets.compare_digest(each.encode(), self.token.encode()) for each in candidates)",
        "any(each.startswith(self.token) for each in candidates)",
        _ACCESS,
    ),
    Mutant(
        "metrics are open to everybody",
        "api/access.py",
        '("/api", "/ws", "/metrics")',
        '("/api", "/ws")',
        _ACCESS,
    ),
    Mutant(
        "a body that says no length is read whole",
        "api/guard.py",
        "        if self._seen > MAX_BODY:\n",
        "        if self._seen > MAX_BODY and not message:\n",
        _ACCESS,
    ),
    Mutant(
        "answers of the API may be kept by others",
        "api/guard.py",
        '"no-store" if self._fresh else "no-cache"',
        '"no-cache"',
        _ACCESS,
    ),
    Mutant(
        "the Python beside the page is served",
        "api/page.py",
        'if path.endswith(".py") or "__pycache__" in path:',
        'if "__pycache__" in path:',
        _ACCESS,
    ),
    Mutant(
        "the message of an unexpected error is shown",
        "api/guard.py",
        'await answer(500, f"unexpected {type(error).__name__}")',
        'await answer(500, f"unexpected {type(error).__name__}: {error}")',
        _PROBLEMS,
    ),
    Mutant(
        "an outage is a conflict",
        "api/problems.py",
        "if isinstance(error, Transient | Unknown | Away):",
        "if isinstance(error, Transient | Unknown):",
        _PROBLEMS,
    ),
    Mutant(
        "nobody is told when to come again",
        "api/problems.py",
        'headers = {"retry-after": str(_RETRY_SECONDS)} if status == 503 else None',
        'headers = {"retry-after": str(_RETRY_SECONDS)} if status == 500 else None',
        _PROBLEMS,
    ),
    Mutant(
        "a page ends with the first item of the next one",
        "api/paging.py",
        "next=_text(place(limit - 1)) if more",
        "next=_text(place(limit)) if more",
        ("tests/api/test_requests.py::test_jobs_page_by_page",),
    ),
    Mutant(
        "the last page says that there is another",
        "api/paging.py",
        "more = len(items) > limit",
        "more = len(items) >= limit",
        ("tests/api/test_requests.py::test_jobs_page_by_page",),
    ),
    Mutant(
        "failed documents count as successes",
        "api/progress_payload.py",
        '"successRecords": counts.read - counts.failed,',
        '"successRecords": counts.read,',
        ("tests/api/test_progress_payload.py",),
    ),
    Mutant(
        "an entity's partitions are not added up",
        "api/progress_payload.py",
        "        counts[name] += part.counts\n",
        "        counts[name] = part.counts\n",
        ("tests/api/test_progress_payload.py",),
    ),
    Mutant(
        "who listens to one job hears of the others",
        "api/progress_feed.py",
        "return self.job is None or message.job in (None, self.job)",
        "return self.job is None or message.job != self.job",
        ("tests/api/test_progress.py",),
    ),
    Mutant(
        "who comes back is told the last message again",
        "api/progress_feed.py",
        "        skip = position + 1 - self._kept[0].seq\n",
        "        skip = position - self._kept[0].seq\n",
        ("tests/api/test_progress.py",),
    ),
    Mutant(
        "the own worker is given the server's token",
        "api/worker_process.py",
        "for name, value in os.environ.items() if name not in _HIDDEN}",
        "for name, value in os.environ.items()}",
        ("tests/api/test_own_worker.py",),
    ),
    Mutant(
        "what is asked while the own worker runs is forgotten",
        "api/worker_process.py",
        "self._next = call if self._next is None else self._next.and_then(call)",
        "self._next = call if self._next is None else self._next",
        ("tests/api/test_own_worker.py",),
    ),
    Mutant(
        "a retry over HTTP leaves out what failed and has not changed",
        "api/routes/failures.py",
        "settings=JobSettings(retry_failures=True)",
        "settings=JobSettings()",
        ("tests/api/test_requests.py",),
    ),
    Mutant(
        "a search over HTTP looks into every entity",
        "api/routes/search.py",
        "instep.search(q, mode=mode, limit=k, entities=entity)",
        "instep.search(q, mode=mode, limit=k)",
        ("tests/api/test_search.py",),
    ),
]
