"""Builds the sidecar of a snapshot: indexes its data files and registers the result.

A build has two stages. Stage 1 makes filters, page indexes and sketches from data files, in this process or on Spark
(:mod:`sidecar.spark`). Stage 2 slices the filters into bundles, in this process. The formats of blobs are in
:mod:`sidecar.bundle`. Start with :mod:`sidecar.indexing.preparing` and :mod:`sidecar.indexing.driver`, then
:mod:`sidecar.indexing.stage_one.tasks` (stage 1) and :mod:`sidecar.indexing.slices` (stage 2). What a table declares is
in :mod:`sidecar.indexing.declaration`.
"""
