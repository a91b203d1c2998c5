"""What Prometheus makes of a scrape."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def values_of(text: str) -> dict[tuple[str, ...], float]:
    """Values of samples by their names and labels."""
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
