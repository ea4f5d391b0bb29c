"""Bundles: the sliced Bloom filters of all units of one column, as building writes them and lookups read them.

Not here: what a filter's bits mean for one file (:mod:`sidecar.filters`). Start with
:mod:`sidecar.bundle.filters.layout`, then :mod:`sidecar.bundle.filters.filter_bundle`.
"""
