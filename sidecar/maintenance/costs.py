"""Sizes and times at which a refresh writes a sidecar anew.

Measured on two cores of a server with a local disk. To merge the segments of a sidecar of 293 MB takes 4.6 s, all of it
CPU time, to copy the file 0.3 s (``scripts/bench segments``). On S3 the store itself copies a segment, and a merge
takes it through this process. A hundred refreshes of a sidecar of 1.4 GB, spread over a day, write it 16 times
(``scripts/bench day``).
"""

from __future__ import annotations

from datetime import timedelta

LARGE = 256 << 20
"""Bytes up to which a sidecar is written anew for any change, as one segment: at most 5 s. A larger one keeps a base
and a delta until a refresh finds no file to index."""
FEW_ROWS = 0.01
"""Share of the rows that a large sidecar may lack."""
NOT_LONG = timedelta(hours=1)
"""For how long a large sidecar may lack them."""
