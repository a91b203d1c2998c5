"""What is known of documents, in Arrow columns: listings, what is recorded, and the changes between them."""
