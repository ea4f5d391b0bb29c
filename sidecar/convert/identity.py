"""What a data file says of itself: which units it has, and by what it is known again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import xxhash

from sidecar.bundle.model import UNLISTED, FileEntry, UnitEntry
from sidecar.orc import identity as orc
from sidecar.orc.tail import OrcTail
from sidecar.parquet import identity as parquet
from sidecar.parquet.footer import Footer
from sidecar.source import Source, local_path


@dataclass(frozen=True)
class Identity:
    """A Parquet or ORC file as far as its footer tells, places of indexes aside.

    ``units``: its row groups, those of ORC counted over all stripes. ``fingerprint`` is of everything that the footer
    says of the data; ``is_distinctive`` whether that tells files of one shape from each other, and ``is_unique``
    whether no other file has it, as of encrypted files. ``digest`` reads all pages as they are stored: files with one
    digest have the same values.
    """

    name: str
    size: int
    num_rows: int
    units: tuple[UnitEntry, ...]
    fingerprint: bytes
    is_distinctive: Callable[[], bool]
    digest: Callable[[], bytes]
    is_unique: bool = False


def identity_of_parquet(source: Source, footer: Footer) -> Identity:
    """The identity of a Parquet file; ``source`` stays in use."""
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
            is_unique=True,
        )
    return Identity(
        footer.name,
        footer.size,
        footer.num_rows,
        units,
        parquet.pages_fingerprint(footer),
        partial(parquet.is_distinctive, footer),
        partial(parquet.pages_digest, source, footer),
    )


def _of_encrypted(footer: Footer) -> bytes:
    """By the random bytes that are an encrypted file's own: what its footer says of values must not go into a hash."""
    assert footer.encryption is not None
    hashed = b"encrypted" + footer.encryption.declaration.aad_file_unique
    hashed += b"".join(group.num_rows.to_bytes(8, "little") for group in footer.row_groups)
    return b"".join(xxhash.xxh64_intdigest(hashed, seed).to_bytes(8, "little") for seed in (0, 1))


def identity_of_orc(source: Source, tail: OrcTail) -> Identity:
    """The identity of an ORC file; ``source`` stays in use. Raises as reading the tail's metadata does."""
    fingerprint = orc.data_fingerprint(source, tail)
    return Identity(
        tail.name,
        tail.size,
        tail.num_rows,
        orc_units(tail),
        fingerprint,
        partial(orc.is_distinctive, source, tail),
        partial(orc.data_digest, source, tail),
    )


def orc_units(tail: OrcTail) -> tuple[UnitEntry, ...]:
    """The row groups of all stripes."""
    firsts = first_units(tail)
    return tuple(
        UnitEntry(firsts[stripe.ordinal] + group.ordinal, group.first_row, group.rows)
        for stripe in tail.stripes
        for group in stripe.row_groups
    )


def first_units(tail: OrcTail) -> list[int]:
    """Row groups in front of each stripe, and at last in all of them."""
    return list(accumulate((stripe.num_row_groups for stripe in tail.stripes), initial=0))


def file_entry(identity: Identity, *, digest: bool) -> FileEntry:
    """A plain file as the units table lists it: no manifest has it, so the entry is what its data is known by.

    That is the fingerprint, and with ``digest`` the digest behind it, for which all pages are read.
    """
    return FileEntry(
        path=identity.name,
        file_size=identity.size,
        record_count=identity.num_rows,
        spec_id=0,
        manifest=UNLISTED,
        entry=identity.fingerprint + (identity.digest() if digest else b""),
        units=identity.units,
    )


def is_local(path: str) -> bool:
    """Whether reading a whole file costs little: it lies on this machine."""
    return local_path(path) is not None
