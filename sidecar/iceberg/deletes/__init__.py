"""The delete files of a snapshot: which data files each applies to, and which of these may have deleted rows."""
