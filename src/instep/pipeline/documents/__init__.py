"""From documents to rows: parse, chunk, hash, compare, embed."""
