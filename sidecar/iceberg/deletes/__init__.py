"""Delete files: to which data files each applies, and which data files may have deleted rows."""
