"""The Puffin container: reader and streaming writer.

Byte map, after Iceberg's Puffin specification, version 1 (integers are signed and little-endian)::

    0                 4 B   magic "PFA1"
    4                       blobs, back to back or with gaps, each plain, one zstd frame or one LZ4 frame
    footer_offset     4 B   magic
    footer_offset+4   n B   payload: JSON of FileMetadata, UTF-8, plain or one LZ4 frame
    size-12           4 B   n, the length of the payload as it stands in the file
    size-8            4 B   flags: bit 0 of the first byte says that the payload is compressed; the rest is 0
    size-4            4 B   magic

Iceberg's ``file-footer-size-in-bytes`` is ``n + 16``. Nothing in a Puffin file is under a checksum but the
compressed frames: a flipped bit of the footer may be valid JSON with another meaning, so a reader that
depends on what a blob is keeps its identity, under a checksum, in the blob itself (package
``sidecar.bundle``).
"""
