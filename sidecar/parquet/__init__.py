"""Reads and writes the parts of a Parquet file: Thrift, footer, Bloom filters, pages, dictionaries, page indexes.

Knows files, not tables. ``encrypted`` has modular encryption, ``scan`` reads rows, ``verify`` compares indexes with
values. Start with :mod:`sidecar.parquet.footer`; :mod:`sidecar.parquet.embed` writes indexes into a file.
"""
