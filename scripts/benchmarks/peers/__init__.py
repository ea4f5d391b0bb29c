"""Peers that are not Python functions: Spark, and small programs around libraries of other languages."""
