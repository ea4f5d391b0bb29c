"""ORC files: tail, stripe footers, row indexes, statistics and Bloom filters."""
