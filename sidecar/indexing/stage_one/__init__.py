"""Stage 1 of a build: makes filters, page indexes and sketches from data files.

Start with :func:`sidecar.indexing.stage_one.tasks.index_units`.
"""
