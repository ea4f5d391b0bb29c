"""Engines run work in this process or on Spark: the choice of one, and the same work for each of many items.

Builds have stages of their own (:mod:`sidecar.indexing.engine_choice`), and are chosen for by the same rule
(:mod:`sidecar.engines.choice`). Everything else that looks at many files is work of :mod:`sidecar.engines.work`.
"""
