"""Blobs with the page indexes of Parquet units and the row indexes of ORC units.

Start with :mod:`sidecar.bundle.indexes.index_blob`.
"""
