"""sidecar: the indexes that lakehouse tables lack, kept beside them."""
