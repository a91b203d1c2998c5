"""Sources: where documents come from. Each implements `sources.document_source.DocumentSource`."""
