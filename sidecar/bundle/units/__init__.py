"""The units blob: which data files a segment lists, their row groups (units), and which units have an index.

Not here: filters and other indexes (:mod:`sidecar.bundle.filters`, :mod:`sidecar.bundle.indexes`). Start with
:mod:`sidecar.bundle.units.reader`.
"""
