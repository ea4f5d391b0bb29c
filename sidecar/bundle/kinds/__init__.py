"""The one declaration of each index kind, and how readers open its blobs.

Not here: the bytes of a blob (:mod:`sidecar.bundle.filters`, :mod:`sidecar.bundle.indexes`,
:mod:`sidecar.bundle.sketches`). Start with :mod:`sidecar.bundle.kinds.declared`.
"""
