"""Conversions between the places where indexes live: Parquet files and sidecars."""
