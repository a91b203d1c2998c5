"""Table entities: what is declared becomes a setup, and what sets them apart from documents."""
