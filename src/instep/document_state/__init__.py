"""State of documents in Arrow columns: listings, records, and the changes between them."""
