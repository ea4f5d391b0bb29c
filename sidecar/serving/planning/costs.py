"""Costs of a plan of the server in memory and time: weights in its caches, and from which size it works otherwise.

``scripts/bench serve`` shows memory and time of plans. What a request may cost at most is in ``limits``, what the
caches may have together in ``scan_planner`` and ``sidecar_pool``.
"""

ENTRY_BYTES = 2000
"""Bytes of an entry of a cache if nothing is in it, about. Tables without deletes have an empty entry a snapshot."""
FILE_BYTES = 200
"""Bytes of Python objects for each file beside its pieces."""
DELETE_BYTES = 4000
"""Bytes of a delete file in memory, about."""
LINE_BYTES = 2000
"""Bytes of a line of a manifest list in memory, about."""
UNPACKED = 12
"""Bytes in memory for each byte of a compressed data manifest. For manifests that compress badly it was 7."""
ORDINALS_OF_PLAN = 50
"""What a kept plan takes beside its ordinals, in ordinals of about 40 bytes."""

COMPARED_AT_ONCE = 1000
"""Files whose bounds, as columns, are compared in the time of one partition."""
DIRECT_FILES = 500
"""The most files that are encoded one by one. More are joined from manifests that are kept in memory."""
SAMPLED_FILES = 100
"""Files that are decoded to see whether all of many files match wholly."""
