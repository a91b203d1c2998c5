"""Engines run the functions of a wave: inline in this process, or on Spark."""
