"""Sizes and times at which a refresh writes a sidecar anew.

Measured on two cores of a server with a local disk. To merge the segments of a sidecar of 293 MB takes 4.6 s, all of it
CPU time, to copy the file 0.3 s (``scripts/bench segments``). On S3 the store itself copies a segment, and a merge
takes it through this process. A sidecar is one file, so each refresh that writes it copies all of it: how long new
files wait decides what a day writes. A hundred refreshes of a sidecar of 1.4 GB, spread over a day, write it 3 times
(``scripts/bench day``), and with a wait of one hour 16 times.
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
"""For how long a large sidecar may lack them at least."""
HOURLY = 200_000_000
"""Bytes of a large sidecar that are written in an hour at most, 5 GB a day: a larger one lacks rows for longer."""
MOST_HOURS = 8.0
"""How many times as long as :data:`NOT_LONG` it may lack them."""


def longest_wait(size: int, asked: timedelta | None) -> timedelta:
    """Return for how long a large sidecar of ``size`` bytes may lack few rows, ``asked`` at most."""
    wait = NOT_LONG * min(max(size / HOURLY, 1.0), MOST_HOURS)
    return wait if asked is None else min(wait, asked)
