"""Filters of ORC files: values, encodings and hashes.

Start with :func:`sidecar.filters.orc.values.probe_orc`.
"""
