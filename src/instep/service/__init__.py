"""The use cases: plan, run, status, search, failures, check. They know ports, not adapters."""
