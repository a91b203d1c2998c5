"""Embedders: text in, vectors out. Each implements `pipeline.documents.embed.embedder.Embedder`."""
