"""Indexing a snapshot: the stages, the in-process engine and the driver."""
