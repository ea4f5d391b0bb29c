"""Checks a Parquet file: its structure, its page indexes, its statistics and its filters against the values.

Start with :mod:`sidecar.parquet.verify.file`, which calls the other modules.
"""
