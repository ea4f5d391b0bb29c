"""Reports the state of a table's sidecars.

Start with :func:`sidecar.reports.status.table_status.status`.
"""
