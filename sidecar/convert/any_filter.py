"""Filters of either kind, to bytes and back: split-block filters of Parquet, and ORC filters."""

from __future__ import annotations

from sidecar.bundle.rules import SPLIT_BLOCK, IndexRule, OrcRule
from sidecar.filters.orc_bloom import OrcBloomFilter
from sidecar.filters.sbbf import SplitBlockBloomFilter

AnyFilter = SplitBlockBloomFilter | OrcBloomFilter


def rule_of(found: AnyFilter) -> IndexRule:
    """By which rule a filter's bits are chosen."""
    return OrcRule(found.k, found.m) if isinstance(found, OrcBloomFilter) else SPLIT_BLOCK


def filter_from(rule: IndexRule, bitset: bytes) -> AnyFilter:
    """The filter that is all of ``bitset``."""
    if isinstance(rule, OrcRule):
        return OrcBloomFilter.from_bytes(bitset, rule.k)
    return SplitBlockBloomFilter.from_bytes(bitset)
