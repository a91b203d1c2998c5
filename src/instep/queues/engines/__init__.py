"""Pending queues: the keys that are in a source and not yet in what should cover it, kept by the database itself."""
