"""Slips of one line in every layer of the product, each of which some test must notice: `python -m tests.mutants`.

What goes wrong only in an order of events is not here: those are the simulator's seeded bugs.
"""
