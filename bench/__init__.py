"""Benchmarks of the main job: `python -m bench` (or `make bench`)."""
