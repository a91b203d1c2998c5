"""Traces, counters and metrics."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COUNTERS = ("tests/telemetry/test_counters.py",)
_TRACES = ("tests/telemetry/test_traces.py",)
_METRICS = ("tests/api/test_metrics.py",)

MUTANTS = [
    Mutant(
        "a traceparent of zeros is a trace",
        "telemetry/context.py",
        'r"00-(?!0{32})([0-9a-f]{32})',
        'r"00-([0-9a-f]{32})',
        _TRACES,
    ),
    Mutant(
        "a thread stays in the trace of what it did last",
        "telemetry/context.py",
        "        yield\n    finally:\n        _CURRENT.reset(token)\n",
        "        yield\n    finally:\n        pass\n",
        _TRACES,
    ),
    Mutant(
        "facts of what is around are lost inside",
        "telemetry/context.py",
        "facts={**context.facts, **facts}))",
        "facts=facts))",
        _TRACES,
    ),
    Mutant(
        "a span is sent though the SDK is disabled",
        "telemetry/traces.py",
        "if not asked or off:",
        "if not asked:",
        _TRACES,
    ),
    Mutant(
        "deleted documents are not counted",
        "telemetry/prometheus.py",
        'for outcome in ("written", "skipped", "deleted", "failed"):',
        'for outcome in ("written", "skipped", "failed"):',
        _COUNTERS,
    ),
    Mutant(
        "the server of counters outlives the work",
        "telemetry/prometheus.py",
        "        server.shutdown()\n        server.server_close()\n        thread.join()\n",
        "        thread.join(0)\n",
        _COUNTERS,
    ),
    Mutant(
        "a port that cannot be is asked for",
        "telemetry/prometheus.py",
        "not port.isdigit() or int(port) > 65_535:",
        "not port.isdigit():",
        _COUNTERS,
    ),
    Mutant(
        "what could not be read is up",
        "api/metrics.py",
        "[((part,), found is not None) for part, found in up.items()]",
        "[((part,), True) for part, found in up.items()]",
        _METRICS,
    ),
    Mutant(
        "what was read once is shown for ever",
        "api/metrics.py",
        "if self._until is None or now >= self._until:",
        "if self._until is None:",
        _METRICS,
    ),
    Mutant(
        "what could not be read is shown as it was before",
        "api/metrics.py",
        "                except InstepError:\n                    self._value = None\n",
        "                except InstepError:\n                    pass\n",
        _METRICS,
    ),
    Mutant(
        "a span of something that came to nothing is sent",
        "telemetry/otlp.py",
        "        if not self._dropped:\n",
        "        if self._span:\n",
        _TRACES,
    ),
    Mutant(
        "a span in which something failed looks well",
        "telemetry/otlp.py",
        '            _fail(span, f"{type(error).__name__}: {error}")\n            raise\n',
        "            raise\n",
        _TRACES,
    ),
    Mutant(
        "a span tells secrets",
        "telemetry/otlp.py",
        "Status(StatusCode.ERROR, cleaned(why))",
        "Status(StatusCode.ERROR, why)",
        _TRACES,
    ),
]
