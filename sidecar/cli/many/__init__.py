"""Many files and many tables in commands: the meaning of arguments, hints, and the text of summaries."""
