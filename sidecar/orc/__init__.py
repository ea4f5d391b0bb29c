"""ORC files: read, check and embed row indexes, statistics and Bloom filters, and decode values.

How values become hashes and bits is in ``sidecar.filters``; tables and sidecars are in other rooms.

Start with ``tail`` (the footer), then ``stripe`` (the streams of a stripe), ``index_streams`` (row indexes and filters)
and ``trust`` (which filters may be probed). ``decode`` reads values, ``embed`` writes filters, ``verify`` checks files.
"""
