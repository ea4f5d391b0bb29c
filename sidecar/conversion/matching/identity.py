"""Describes a data file by its footer: its units, and the facts by which it is recognized later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate

import xxhash

from sidecar.bundle.model import UNLISTED, FileEntry, UnitEntry
from sidecar.orc import identity as orc
from sidecar.orc.tail import OrcTail
from sidecar.parquet import identity as parquet
from sidecar.parquet.footer import Footer
from sidecar.storage.locations import local_path
from sidecar.storage.source import Source


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


def identity_of_parquet(source: Source, footer: Footer) -> Identity:
    """Return the identity of a Parquet file. ``source`` must stay open: the digests read it."""
    units = tuple(UnitEntry(group.ordinal, group.first_row, group.num_rows) for group in footer.row_groups)
    if footer.encryption is not None:
        return Identity(
            footer.name,
            footer.size,
            footer.num_rows,
            units,
            _of_encrypted(footer),
            lambda: True,
            lambda: b"",
            lambda: b"",
            is_unique=True,
        )
    return Identity(
        footer.name,
        footer.size,
        footer.num_rows,
        units,
        parquet.pages_fingerprint(footer),
        partial(parquet.is_distinctive, footer),
        cache(partial(parquet.pages_digest, source, footer, check=False)),
        partial(parquet.pages_digest, source, footer, check=True),
    )


def _of_encrypted(footer: Footer) -> bytes:
    """Return a fingerprint of the random bytes that identify an encrypted file.

    It does not cover what the footer says about values: a hash of secrets must not go into a plaintext sidecar.
    """
    assert footer.encryption is not None
    hashed = b"encrypted" + footer.encryption.declaration.aad_file_unique
    hashed += b"".join(group.num_rows.to_bytes(8, "little") for group in footer.row_groups)
    return b"".join(xxhash.xxh64_intdigest(hashed, seed).to_bytes(8, "little") for seed in (0, 1))


def identity_of_orc(source: Source, tail: OrcTail) -> Identity:
    """Return the identity of an ORC file. ``source`` must stay open: the digests read it.

    Raises the errors of reading the tail's metadata.
    """
    fingerprint, digest = orc.data_fingerprint(source, tail), cache(partial(orc.data_digest, source, tail))
    return Identity(
        tail.name,
        tail.size,
        tail.num_rows,
        orc_units(tail),
        fingerprint,
        partial(orc.is_distinctive, source, tail),
        digest,
        digest,  # data of ORC has no checksums
    )


def orc_units(tail: OrcTail) -> tuple[UnitEntry, ...]:
    """Return the row groups of all stripes, numbered over the file."""
    firsts = first_units(tail)
    return tuple(
        UnitEntry(firsts[stripe.ordinal] + group.ordinal, group.first_row, group.rows)
        for stripe in tail.stripes
        for group in stripe.row_groups
    )


def first_units(tail: OrcTail) -> list[int]:
    """Return the number of row groups before each stripe; the last entry counts all of them."""
    return list(accumulate((stripe.num_row_groups for stripe in tail.stripes), initial=0))


def file_entry(identity: Identity) -> FileEntry:
    """Return the units table's entry for a plain file.

    No manifest lists a plain file, so the entry holds the fingerprint of its data, and for a local file the digest of
    all stored pages. Raises :class:`sidecar.errors.WrongChecksumError` for a page with a wrong checksum.
    """
    return FileEntry(
        path=identity.name,
        file_size=identity.size,
        record_count=identity.num_rows,
        spec_id=0,
        manifest=UNLISTED,
        entry=identity.fingerprint + (identity.checked_digest() if is_local(identity.name) else b""),
        units=identity.units,
    )


def is_local(path: str) -> bool:
    """Return whether the file is on this machine, so that reading all of it costs little."""
    return local_path(path) is not None
