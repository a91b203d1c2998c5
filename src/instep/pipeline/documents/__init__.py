"""The pipeline of documents to rows: parse, chunk, hash, compare, embed."""
