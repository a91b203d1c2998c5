"""Coordination: jobs, slices, leases, checkpoints, manifest and failures, in one database."""
