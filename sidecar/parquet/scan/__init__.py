"""Reads the rows of a Parquet file that can meet a condition, from as few of its pages as its indexes allow.

Tables and Iceberg predicates are not in here. Start with :mod:`sidecar.parquet.scan.page_scan`.
"""
