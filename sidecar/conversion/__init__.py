"""Moves indexes between data files and Puffin sidecars: extract, convert, match, restore and verify.

Nothing here writes a data file with indexes, except ``refold``: :mod:`sidecar.embedding` does that. Start with
:mod:`sidecar.conversion.extract` (data files into a Puffin file), then :mod:`sidecar.conversion.matching.match` (which
file of a sidecar is this data file?) and :mod:`sidecar.conversion.matching.witness` (do the indexes belong to its
values?).
"""
