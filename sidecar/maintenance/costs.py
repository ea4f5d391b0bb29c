"""Sizes and times at which a refresh writes a sidecar anew.

Measured on two cores of a server with a local disk. To merge the segments of a sidecar of 293 MB takes 4.6 s, all of it
CPU time, to copy the file 0.3 s (``scripts/bench segments``). On S3 the store itself copies a segment, and a merge
takes it through this process. A hundred refreshes of a sidecar of 1.4 GB, spread over a day, write it 16 times
(``scripts/bench day``).
"""

from __future__ import annotations

from datetime import timedelta

MERGED_AT_ONCE = 8 << 20
"""Bytes up to which a refresh makes one segment of all: about 0.15 s. A larger sidecar keeps a base, which a store
copies by itself, and a delta, until a refresh finds no file to index."""
LARGE = 256 << 20
"""Bytes up to which a sidecar is written anew for any file that is new."""
FEW_ROWS = 0.01
"""Share of the rows that a large sidecar may lack."""
NOT_LONG = timedelta(hours=1)
"""For how long a large sidecar may lack them."""
