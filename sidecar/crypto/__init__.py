"""Encryption keys and AES for all formats. It knows no file format.

How Parquet files are encrypted is in :mod:`sidecar.parquet.encrypted`, how sidecar's blobs are in
:mod:`sidecar.bundle.envelopes.encryption`. Start with ``keys`` (where keys come from), then ``aes``.
"""
