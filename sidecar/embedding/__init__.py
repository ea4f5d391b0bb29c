"""Writes data files with other filters and page indexes: built, restored from a sidecar, or removed.

The data pages are copied as bytes. Placing the new bytes in a file is the task of :mod:`sidecar.parquet.embed` and
:mod:`sidecar.orc.embed`. Start with :mod:`sidecar.embedding.file` (one file), :mod:`sidecar.embedding.from_sidecar`
(indexes out of a sidecar) or :mod:`sidecar.embedding.table` (all files of a table in one commit).
"""
