"""Decrypts Parquet modular encryption, so that an encrypted file reads like a plain one, and encrypts new parts.

Keys come from :mod:`sidecar.crypto`. Values are decoded by the readers of plain files, not in here. Start with
:mod:`sidecar.parquet.encrypted.plain_view`.
"""
