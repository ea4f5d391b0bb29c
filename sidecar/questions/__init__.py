"""Conditions on columns, and the rules by which bounds and filters rule out pages, row groups and files.

Nothing here knows a file format or pyiceberg: :mod:`sidecar.iceberg.predicates.conditions` makes conditions of
predicates, and :mod:`sidecar.parquet`, :mod:`sidecar.orc` and :mod:`sidecar.planning` make bounds of what they read.
Start with :mod:`sidecar.questions.conditions`, then :mod:`sidecar.questions.narrowing`.
"""
