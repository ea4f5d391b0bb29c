"""What commands do with many files and many tables: which arguments name what, hints, and the text of the summaries."""
