"""Describes a data file by its footer: its units, and the facts by which it is recognized later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import UNLISTED, FileEntry, UnitEntry
from sidecar.data_files.open_file import OpenFile
from sidecar.storage.locations import local_path


@dataclass(frozen=True)
class Identity:
    """Identifies a Parquet or ORC file. Where its indexes are in the file does not count.

    ``units``: its row groups, in ORC counted over all stripes. ``fingerprint``: a hash of everything that the footer
    says about the data. ``is_distinctive``: whether the fingerprint tells files of the same shape apart. ``is_unique``:
    whether no other file has the fingerprint, as for encrypted files. ``digest`` reads all stored pages: files with the
    same digest have the same values. A second call reads nothing. ``checked_digest`` is the same digest, and raises
    :class:`sidecar.errors.WrongChecksumError` for a page that is not as it was written.
    """

    name: str
    size: int
    num_rows: int
    units: tuple[UnitEntry, ...]
    fingerprint: bytes
    is_distinctive: Callable[[], bool]
    digest: Callable[[], bytes]
    checked_digest: Callable[[], bytes]
    is_unique: bool = False


def identity_of(file: OpenFile) -> Identity:
    """Return the identity of an open file. Its source must stay open: the digests read it.

    Raises the errors of reading the file's metadata.
    """
    return Identity(
        file.name,
        file.size,
        file.num_rows,
        tuple(file.units),
        file.fingerprint(),
        file.is_distinctive,
        partial(file.digest, check=False),
        partial(file.digest, check=True),
        file.is_unique,
    )


def file_entry(identity: Identity) -> FileEntry:
    """Return the units table's entry for a plain file.

    No manifest lists a plain file, so the entry holds the fingerprint of its data, and for a local file the digest of
    all stored pages. Raises :class:`sidecar.errors.WrongChecksumError` for a page with a wrong checksum.
    """
    return FileEntry(
        DataFileIdentity(identity.name, identity.size, identity.num_rows),
        spec_id=0,
        manifest=UNLISTED,
        entry=identity.fingerprint + (identity.checked_digest() if is_local(identity.name) else b""),
        units=identity.units,
    )


def is_local(path: str) -> bool:
    """Return whether the file is on this machine, so that reading all of it costs little."""
    return local_path(path) is not None
