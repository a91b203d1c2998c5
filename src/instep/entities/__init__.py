"""Declared entities in their scopes, with their adapters: documents and tables."""
