"""Many manifest entries at once: their Avro records become columns, and files that are decoded when looked at.

Start with :mod:`sidecar.iceberg.records.walking`.
"""
