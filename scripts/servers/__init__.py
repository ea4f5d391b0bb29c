"""Servers for tests and for users who try sidecar: a REST catalog, PostgreSQL and S3, out of packages.

All of them listen on this machine alone. ``scripts/services`` starts and ends them.
"""
