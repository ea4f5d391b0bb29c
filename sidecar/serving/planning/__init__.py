"""Plans the scans of REST clients: with the sidecar, and by manifests where that is not possible."""
