"""Rows of tables on their way through a wave: into the tables of a graph."""
