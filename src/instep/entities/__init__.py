"""One declared entity in its scope, with its adapters: documents and tables."""
