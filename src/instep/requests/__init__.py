"""Requests: wants, and the messages of other programs that become wants."""
