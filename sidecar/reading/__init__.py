"""Reads matching rows: those of a plan's files, and those of one plain Parquet or ORC file.

Which files and row groups a table scan reads is decided in :mod:`sidecar.planning`; how pages and stripes are decoded
is in :mod:`sidecar.parquet.scan` and :mod:`sidecar.orc`. Start with :mod:`sidecar.reading.scanning` for tables and
:mod:`sidecar.reading.file_scanning` for plain files.
"""
