"""Rows for a predicate: from the files of a plan, and from plain files."""
