"""Fuzzers of every decoder: one module a family, one harness that runs the cases."""
