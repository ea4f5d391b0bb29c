"""The way of a value to bytes, a hash and bits: encodings, Bloom filters of both formats, theta sketches.

Nothing here opens a file: the layouts of Parquet and ORC files are in ``sidecar.parquet`` and ``sidecar.orc``.

Start with ``values`` (a literal becomes the hashes to probe), ``array_hash`` (an Arrow array becomes the hashes to
insert) and ``sbbf`` (the filter itself). ``orc_values``, ``orc_array_hash`` and ``orc_bloom`` do the same for ORC.
``column_types`` lists what sidecar knows about each Iceberg type.
"""
