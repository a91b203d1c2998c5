"""HTTP API, WebSocket progress and metrics of a project: what `instep serve` serves."""
