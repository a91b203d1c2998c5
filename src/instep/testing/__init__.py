"""Contract suites for what third parties write: pytest classes to inherit; needs `instep[testing]`.

Targets: `instep.testing.target.TargetContract` for documents, `instep.testing.table_target.TableTargetContract` for
tables, `instep.testing.ownership` for whose their indexes are. `instep.testing.source.SourceContract` is for sources,
`instep.testing.embedder.EmbedderContract` for embedders. docs/functions.md has examples.
"""
