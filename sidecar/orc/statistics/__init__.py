"""Statistics of ORC columns: what they say, what contradicts them, and the bounds that may be used.

Start with :func:`sidecar.orc.statistics.column_statistics.decode_statistics`.
"""
