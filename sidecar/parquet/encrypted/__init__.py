"""Parquet modular encryption: the footer, the modules of a file, and an encrypted file as a plain one.

Nothing here reads values. Start with :mod:`sidecar.parquet.encrypted.plain_view`, which all readers of encrypted
files open.
"""
