"""Spark: the engine that builds sidecars on a cluster, and DataFrames of a plan's files.

The stages of a build are in :mod:`sidecar.indexing`, plans in :mod:`sidecar.planning`; only this room imports
pyspark. Start with :mod:`sidecar.spark.engine` for builds. Reads are in :mod:`sidecar.spark.native` (Iceberg's own
reader).
"""
