"""Reads the rows of a Parquet file that can meet a condition, from as few of its pages as its indexes allow.

Nothing here knows tables or predicates of Iceberg. Start with :mod:`sidecar.parquet.scan.page_scan`.
"""
