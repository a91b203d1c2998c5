"""Sources: where documents come from. Each implements `sources.port.DocumentSource`."""
