"""Tests of `instep mcp`, each with a real client."""
