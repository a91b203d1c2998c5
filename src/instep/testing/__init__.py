"""Contract suites for targets of third parties: pytest classes to inherit; needs `instep[testing]`.

`instep.testing.target.TargetContract` is for documents, `instep.testing.table_target.TableTargetContract` for tables,
`instep.testing.ownership` for whose their indexes are. docs/functions.md has an example.
"""
