"""Connections to PostgreSQL, for all that speak to it."""
