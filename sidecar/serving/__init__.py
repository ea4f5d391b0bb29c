"""A REST endpoint of Iceberg's protocol that plans scans with the sidecar."""
