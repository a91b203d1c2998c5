"""Targets: where rows land. Each implements the port of documents, that of tables, or both."""
