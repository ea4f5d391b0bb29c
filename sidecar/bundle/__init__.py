"""The sidecar's own formats: units table, sliced filters, table of contents."""
