"""Sizes of what goes between Python and Spark's virtual machine, which makes several copies of a row.

``scripts/bench spark`` shows what a change does to builds. All sizes are bytes.
"""

FLUSH_BYTES = 4 << 20
"""Indexes in one row of results, about."""
FLUSH_RECORDS = 20_000
"""Records in one row of results, at most."""
PARTITION_BYTES = 16 << 20
"""A partition that goes to the driver, about."""
MOST_OF_A_TASK = 64 << 20
"""Results of one task above which results are divided anew: else a partition has all results of a task."""
MOST_PARTITIONS = 2000
"""Partitions of a frame, at most."""
BY_FILE = 16 << 10
"""A range of a file from which on the way over a file in memory is the faster one: py4j sends bytes as text."""
WRITTEN_AT_ONCE = 4 << 20
"""What is collected before it is sent to the virtual machine, to be written."""
