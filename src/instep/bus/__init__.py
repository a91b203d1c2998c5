"""Requests on their way to handlers, and the keys under which these say how far they are."""
