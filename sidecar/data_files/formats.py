"""Opens data files: the one place that asks whether a file is Parquet or ORC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TypeAlias

from sidecar.access import Access
from sidecar.crypto.keys import EncryptionKeys
from sidecar.data_files.open_orc import OpenOrc
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError
from sidecar.orc import tail as orc
from sidecar.parquet import footer as parquet
from sidecar.parquet.encrypted.plain_view import open_parquet, unlock
from sidecar.storage.source import Source

Metadata: TypeAlias = parquet.Footer | orc.OrcTail
"""The metadata at the end of a data file."""


def open_file(source: Source, keys: EncryptionKeys | None = None) -> OpenParquet | OpenOrc:
    """Open a data file by its magic; ``keys`` open encrypted Parquet files. Raises the errors of its metadata."""
    return OpenOrc(source, orc.read_tail(source)) if orc.is_orc(source) else OpenParquet(*open_parquet(source, keys))


@contextmanager
def opened_file(access: Access, path: str) -> Iterator[OpenParquet | OpenOrc]:
    """Open the data file at ``path`` within the block, with the keys of ``access``. Raises as :func:`open_file`."""
    with closing(access.open(path)) as source:
        yield open_file(source, access.keys)


def read_metadata(source: Source, kind: str) -> Metadata:
    """Read the metadata of a file in the format that its manifest names, so that its magic is not read.

    Raises :class:`UnsupportedFeatureError` for other formats, and the errors of reading.
    """
    if kind == "PARQUET":
        return parquet.read_footer(source)
    if kind == "ORC":
        return orc.read_tail(source)
    raise UnsupportedFeatureError(f"files in {kind} are not indexed", file=source.name)


def plain_source(source: Source, kind: str, keys: EncryptionKeys | None) -> Source:
    """Return the plaintext view of a file in the format that its manifest names.

    Without the key of its footer it is the file itself, whose encrypted columns are then locked.
    """
    if keys is None or kind != "PARQUET":
        return source
    with suppress(UsageError):
        return unlock(source, keys)
    return source


def open_with(source: Source, metadata: Metadata) -> OpenParquet | OpenOrc:
    """Return the open file that ``metadata`` belongs to."""
    return OpenOrc(source, metadata) if isinstance(metadata, orc.OrcTail) else OpenParquet(source, metadata)


def has_encrypted_footer(source: Source) -> bool:
    """Return whether a file, which could not be opened, is a Parquet file with an encrypted footer."""
    with suppress(SidecarError):
        return parquet.read_tail(source).is_encrypted
    return False
