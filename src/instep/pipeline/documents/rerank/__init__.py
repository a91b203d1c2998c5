"""Rerankers: models that look at a query and a text together, to put the first hits of a search in a better order."""
