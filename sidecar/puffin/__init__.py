"""The Puffin container: footer, reader and streaming writer. It knows blob types only by name.

The content of sidecar's blobs is in :mod:`sidecar.bundle`. Start with ``reader`` and ``writer``.
Byte map, after Iceberg's Puffin specification, version 1 (integers are signed and little-endian)::

    0                 4 B   magic "PFA1"
    4                       blobs, back to back or with gaps, each plain, one zstd frame or one LZ4 frame
    footer_offset     4 B   magic
    footer_offset+4   n B   payload: JSON of FileMetadata, UTF-8, plain or one LZ4 frame
    size-12           4 B   n, the length of the payload as stored, compressed or not
    size-8            4 B   flags: bit 0 of the first byte is set if the payload is compressed; the rest is 0
    size-4            4 B   magic

Iceberg's ``file-footer-size-in-bytes`` is ``n + 16``. Puffin has no checksums, except in compressed frames. A
flipped bit can leave the footer valid JSON with another meaning. So a reader that depends on the identity of a
blob must keep that identity, with a checksum, in the blob itself, as :mod:`sidecar.bundle` does.
"""
