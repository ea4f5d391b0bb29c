"""Iceberg tables as they are: catalogs, manifests, snapshots, columns, predicates, and what is registered."""
