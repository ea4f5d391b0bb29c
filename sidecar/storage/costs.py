"""Sizes of reads, writes and copies, which follow from what these cost on local disks and in object stores.

A local read takes microseconds. A request to an object store takes tens of milliseconds, in which it could transfer a
megabyte. ``scripts/bench s3`` shows what a change of the sizes of remote reads does (its requests take 20 ms more),
``scripts/bench lookup`` that of local reads, ``scripts/bench embed`` and ``scripts/bench build`` those of writes and
copies. All sizes are bytes.
"""

COALESCE_GAP = 16 << 10
"""Ranges of a local file that are at most so far apart are fetched in one read."""
LARGE_READ = 1 << 20
"""A local read of this length is not made longer: copying its parts costs more than another read."""
DIGEST_STEP = 8 << 20
"""What is hashed at once: a request to a store takes long, and each step waits for the interpreter's lock."""

REMOTE_GAP = 256 << 10
"""Ranges of a remote file that are at most so far apart are fetched in one read."""
REMOTE_TAIL = 256 << 10
"""What the first read that reaches the end of a remote file fetches of its tail, and keeps.

Any read of a shorter file fetches the whole file. Both need a known file length.
"""
REQUESTS_AT_ONCE = 8
"""Ranges of a remote file that are requested at the same time."""

JOINED_WRITE = 64 << 10
"""A piece up to this length and the bytes that are held back become one write."""
FLUSHED_STEP = 2 << 20
"""After so much, the disk is told to begin with what was written: the last wait has less to wait for."""
COPY_LENGTH = 8 << 20
"""One step of a copy that the kernel cannot do alone."""
KERNEL_COPY_LENGTH = 256 << 20
"""One step of a copy inside the kernel."""
