"""Benchmarks: ``scripts/bench`` runs them, ``harness`` has what they share, ``inputs`` makes their data."""
