"""Embedders: text in, vectors out. Each implements `documents.embed.port.Embedder`."""
