"""The sidecar's own formats: blobs of filters, page indexes and row indexes, and the units blob that lists the files.

A sidecar has one *segment* for each build: a units blob and the blobs of its fields, all in one Puffin file. The Puffin
container is in :mod:`sidecar.puffin`; which rows an index may exclude is for :mod:`sidecar.planning`. Start with
``model`` (what a segment holds), ``envelope`` (what all blobs share) and ``sidecar_file`` (how a file is opened).
"""
