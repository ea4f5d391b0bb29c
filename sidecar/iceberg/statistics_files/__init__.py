"""Statistics files of snapshots: found, merged with what others wrote, registered.

Start with :func:`sidecar.iceberg.statistics_files.registering.register`.
"""
