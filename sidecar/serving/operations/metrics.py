"""Writes the measured values of a server as text that Prometheus reads."""

from __future__ import annotations

import re
from bisect import bisect_left

from sidecar.serving.operations.counters import Counters

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram's buckets, in seconds."""
METRICS = {
    "sidecar_plans_total": ("counter", "Plan requests that were answered, by route and result."),
    "sidecar_plan_seconds": ("histogram", "Time to answer a plan request, without the load of the table."),
    "sidecar_plan_files_total": ("counter", "Data files of the tables that were planned."),
    "sidecar_plan_files_kept_total": ("counter", "Data files that clients were told to read."),
    "sidecar_plan_sentinels_total": ("counter", "Plans with a file that is there only for DELETE and UPDATE."),
    "sidecar_index_bytes_total": ("counter", "Bytes of sidecars that plans read."),
    "sidecar_fallbacks_total": ("counter", "Plans for which no sidecar was asked or believed, by reason."),
    "sidecar_upstream_requests_total": ("counter", "Requests that were sent to the upstream, by class of its answer."),
}
"""Each metric with its type and meaning."""
_WORD = re.compile(r"[a-z0-9_-]{1,40}")


def sample(metric: str, **labels: str) -> str:
    """Return the name of a sample. Values of labels that are no short word are replaced by ``other``."""
    known = ",".join(f'{name}="{_word(value)}"' for name, value in labels.items())
    return f"{metric}{{{known}}}" if known else metric


def observe_seconds(counters: Counters, metric: str, seconds: float) -> None:
    """Count a time in a histogram."""
    at = bisect_left(BUCKETS, seconds)
    bound = f"{BUCKETS[at]:g}" if at < len(BUCKETS) else "+Inf"
    counters.add(f'{metric}_bucket{{le="{bound}"}}')
    counters.add(f"{metric}_sum", seconds)


def exposition(totals: dict[str, float]) -> str:
    """Return the counts in Prometheus' text format. Metrics without a count are there with zero."""
    lines: list[str] = []
    for metric, (kind, meaning) in METRICS.items():
        lines += [f"# HELP {metric} {meaning}", f"# TYPE {metric} {kind}"]
        if kind == "histogram":
            lines += _histogram(metric, totals)
            continue
        own = {name: value for name, value in sorted(totals.items()) if name.partition("{")[0] == metric}
        lines += [f"{name} {value:.17g}" for name, value in (own or {metric: 0.0}).items()]
    return "\n".join(lines) + "\n"


def _histogram(metric: str, totals: dict[str, float]) -> list[str]:
    """Return the lines of a histogram, whose buckets hold all times up to their bounds."""
    lines, count = [], 0.0
    for bound in (*(f"{bucket:g}" for bucket in BUCKETS), "+Inf"):
        name = f'{metric}_bucket{{le="{bound}"}}'
        count += totals.get(name, 0.0)
        lines.append(f"{name} {count:.17g}")
    return [*lines, f"{metric}_sum {totals.get(f'{metric}_sum', 0.0):.17g}", f"{metric}_count {count:.17g}"]


def _word(value: str) -> str:
    return value if _WORD.fullmatch(value) else "other"
