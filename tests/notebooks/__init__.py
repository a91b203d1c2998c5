"""Tests of what a notebook shows and awaits."""
