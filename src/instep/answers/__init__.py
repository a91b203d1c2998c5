"""Answers to questions about a project: status, search, history, lineage."""
