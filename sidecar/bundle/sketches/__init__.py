"""Theta sketches of groups of files, so that the distinct counts of a table survive the removal of files.

Not here: what a sketch is (:mod:`sidecar.filters.theta`), and which files form a group (:mod:`sidecar.indexing`). Start
with :mod:`sidecar.bundle.sketches.group_table`.
"""
