"""Reads Iceberg tables, catalogs and manifests, and commits what sidecar changes in them.

Here are snapshots, branches and tags, deletes, columns and predicates; the registration and repair of statistics
files; and the commit that replaces data files. Which files a query needs is decided in :mod:`sidecar.planning`. Start
with :mod:`sidecar.iceberg.listing` (reading) and :mod:`sidecar.iceberg.statistics_files.registering` (writing).
"""
