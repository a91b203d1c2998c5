"""A deterministic simulator: the real service code in greenlets, with virtual time and seeded faults.

One run of a seed is called a *schedule* here. `python -m tests.simulator --seed N --schedules 1` runs one again.
"""
