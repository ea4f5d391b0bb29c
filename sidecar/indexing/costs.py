"""Sizes into which a build divides its work, chosen by what tasks, caches and memory cost.

``scripts/bench build`` shows what a change does to builds in this process, ``scripts/bench spark`` to those on Spark.
All sizes are bytes.
"""

from sidecar.results.choices import EngineKind

SMALLEST_TASK: dict[EngineKind, int] = {"local": 4 << 20, "spark": 16 << 20}
"""A small task. A task of Spark costs more to start; small ones divide the work better between threads."""
LARGEST_TASK = 128 << 20
SMALLEST_PIECE = 16 << 20
"""A small piece of a file. Smaller ones would more often have no row group, and be opened for nothing."""
TASKS = 64
"""The number of tasks to aim for: enough to keep a pool busy; more only if some would exceed :data:`LARGEST_TASK`."""

PART_BYTES = 8 << 20
"""One part of a group, over the blocks of all positions, at most; more only if a single page is larger."""
SMALL_PART_BYTES = 2 << 20
"""One part of a small group: threads share its parts, and they fit the cache. A large group gets fewer and larger
parts, because each part reads a piece of every filter."""
PARTS_OF_GROUP = 16
"""The number of parts of a group to aim for."""

FREED_BYTES = 16 << 20
"""More than a thread has at a time while it indexes a file, for files with pages and windows of usual sizes. If the C
library gives it back after each file, a build of 6 million rows has 34,000 page faults, else 60."""
UNITED_AT_ONCE = 256
"""Sketches in memory while those of a column are united: 8 MiB at the usual size."""
