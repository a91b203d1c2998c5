"""The slips, layer by layer: each a line that a tired developer may write."""

from __future__ import annotations

from tests.mutants.slips import (
    api,
    bus,
    cli,
    documents,
    domain,
    engine,
    ledger,
    planning,
    project,
    queues,
    search,
    sources,
    tables,
    targets,
    telemetry,
)

LAYERS = {
    "domain": domain.MUTANTS,
    "project": project.MUTANTS,
    "ledger": ledger.MUTANTS,
    "sources": sources.MUTANTS,
    "planning": planning.MUTANTS,
    "documents": documents.MUTANTS,
    "tables": tables.MUTANTS,
    "targets": targets.MUTANTS,
    "engine": engine.MUTANTS,
    "bus": bus.MUTANTS,
    "queues": queues.MUTANTS,
    "search": search.MUTANTS,
    "api": api.MUTANTS,
    "cli": cli.MUTANTS,
    "telemetry": telemetry.MUTANTS,
}
ALL = [each for layer in LAYERS.values() for each in layer]
