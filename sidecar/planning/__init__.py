"""Decides which files, row groups and pages of a snapshot can hold rows for a predicate; no row is read here.

Also here: inspect, probe, status and verify of a table's sidecar. Rows are read in :mod:`sidecar.reading`; how a
predicate becomes a condition is in :mod:`sidecar.iceberg.predicates.conditions`. Start with
:func:`sidecar.planning.planner.plan`, then :mod:`sidecar.planning.files.choose`.
"""
