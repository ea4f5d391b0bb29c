"""The common members of the tables of contents of filter bundles and of blobs with page indexes or row indexes.

kind           the blob's kind                 version       4; encrypted blobs 3
table          the table's UUID                segment       id, 32 hexadecimal digits
field          field id                        toc_offset    offset of the TOC in the blob
units          {"count": units of the segment, "digest": XXH64 of the units TOC, 16 hexadecimal digits}
encryption     only in encrypted blobs, see ``encryption``
column         {"name": the names of the column's path, outermost first, "type": its Iceberg type}, for people. Absent
               in encrypted blobs, for columns that are encrypted in a data file, and for names that are too long
groups         list of
    version    1. A reader skips groups of other versions
    offset, length   of the group's bytes in the blob
    members    N                               units         the members' unit ordinals, see ``unit_set``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import CHECKED, ENCRYPTED, PieceOverhead
from sidecar.bundle.envelopes.encryption import (
    ENCRYPTED_VERSION,
    FieldKey,
    Lock,
    Owner,
    bound_part,
    digest_of,
    toc_with_lock,
)
from sidecar.bundle.envelopes.envelope import (
    FIELD_VERSION,
    HEADER_BYTES,
    VERSION,
    decode_toc,
    integer,
    member,
    segment_bytes,
    toc_digest,
)
from sidecar.bundle.model import SegmentHeader, StoredColumn
from sidecar.bundle.unit_set import count_units, decode_units, encode_units
from sidecar.bundle.units.reader import MAX_UNITS
from sidecar.errors import DamagedFileError, UnsupportedFeatureError

MAX_GROUPS = 1 << 16
MAX_NAMES, MAX_NAME_BYTES, MAX_TYPE = 128, 4096, 256
"""The most names of a column's path, their UTF-8 bytes together, and characters of its type. Others are not written."""

G = TypeVar("G")


@dataclass(frozen=True, kw_only=True)
class FieldToc:
    """The decoded TOC of a blob that is about one field. ``damage`` names the groups that this reader skips."""

    kind: str
    table_uuid: str
    segment_id: bytes
    field_id: int
    num_units: int
    units_digest: int
    toc_offset: int
    damage: tuple[str, ...] = ()
    lock: Lock | None = None
    """The key information of an encrypted blob."""
    digest: bytes = b""
    """SHA-256 of the TOC without the lock; empty for a plain blob."""
    column: StoredColumn | None = None
    """The column as it was named when the blob was written."""

    def owner(self, units_digest: bytes) -> Owner:
        """Return the owner of the blob's wrapped key. ``units_digest`` is the SHA-256 of the units blob's TOC."""
        return Owner(self.table_uuid, self.segment_id, self.field_id, self.kind, units_digest, self.digest)

    @property
    def sealing(self) -> PieceOverhead:
        """The bytes around the data of each piece."""
        return CHECKED if self.lock is None else ENCRYPTED


def described_group(offset: int, length: int, units: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return the members of a group's JSON object that all kinds of groups have."""
    return {
        "version": VERSION,
        "offset": offset,
        "length": length,
        "members": len(units),
        "units": encode_units(units),
    }


def encode_field_toc(
    kind: str,
    header: SegmentHeader,
    field_id: int,
    groups: Sequence[dict[str, Any]],
    num_units: int,
    units_toc: bytes,
    key: FieldKey | None,
    **facts: float,
) -> tuple[bytes, int]:
    """Return the TOC's bytes and its offset in the blob, which is the end of the last group."""
    offset = HEADER_BYTES + sum(group["length"] for group in groups)
    content = {
        "kind": kind,
        "version": FIELD_VERSION if key is None else ENCRYPTED_VERSION,
        "table": header.table_uuid,
        "segment": header.segment_id.hex(),
        "field": field_id,
        "units": {"count": num_units, "digest": f"{toc_digest(units_toc):016x}"},
        "toc_offset": offset,
        "groups": groups,
        **facts,
    }
    column = header.columns.get(field_id) if key is None else None
    if column is not None and not _defect(column):
        content["column"] = {"name": list(column.path), "type": column.type}
    return toc_with_lock(content, key, units_toc), offset


def decode_field_toc(
    toc: bytes, kind: str, what: str, decode_group: Callable[[int, dict[str, Any], FieldToc], G]
) -> tuple[FieldToc, tuple[G, ...], dict[str, Any]]:
    """Decode the verified TOC of a blob of ``kind``: what all TOCs have, the groups, and the JSON object.

    A group for which ``decode_group`` raises is skipped and named in ``damage``; ``what`` names such blobs in messages.
    Raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError`.
    """
    content = decode_toc(toc)
    if content.get("kind") != kind:
        found = repr(content.get("kind"))[:40]
        raise DamagedFileError(f"this is not the table of contents of {what}", found=found)
    lock = _decode_lock(content, what)
    units = member(content, "units", dict)
    found_toc = FieldToc(
        kind=kind,
        table_uuid=member(content, "table", str),
        segment_id=segment_bytes(content),
        field_id=integer(content, "field", -(1 << 31), (1 << 31) - 1),
        num_units=integer(units, "count", high=MAX_UNITS),
        units_digest=_units_digest(units),
        toc_offset=integer(content, "toc_offset"),
        lock=lock,
        digest=b"" if lock is None else digest_of(bound_part(toc, lock)),
        column=_decode_column(content["column"]) if "column" in content else None,
    )
    groups, damage = [], []
    for ordinal, described in enumerate(member(content, "groups", list)[:MAX_GROUPS]):
        try:
            if not isinstance(described, dict):
                raise DamagedFileError("a group is not a JSON object")
            require(described, "version", VERSION)
            groups.append(decode_group(ordinal, described, found_toc))
        except (DamagedFileError, UnsupportedFeatureError) as error:
            damage.append(f"group {ordinal} of {what} is not understood: {error}")
    return replace(found_toc, damage=tuple(damage)), tuple(groups), content


def require(content: dict[str, Any], key: str, known: object) -> None:
    """Raise :class:`UnsupportedFeatureError` unless ``content[key]`` is the one value that this reader knows."""
    if content.get(key) != known:
        raise UnsupportedFeatureError(f"unknown {key}", expected=known, found=repr(content.get(key))[:40])


def decode_members(content: dict[str, Any], num_units: int) -> tuple[int, npt.NDArray[np.int64] | slice]:
    """Return the number of members of a group, and their units; a slice if they are one run.

    Raises :class:`DamagedFileError` if the two do not match.
    """
    units = decode_units(content.get("units"), num_units)
    members = integer(content, "members", 1, MAX_UNITS)
    if count_units(units) != members:
        raise DamagedFileError(
            "a group's units do not match its number of members", expected=members, found=count_units(units)
        )
    return members, units


def _decode_column(content: object) -> StoredColumn:
    """Return the name and type of the column. Raises :class:`DamagedFileError` for what no writer writes."""
    names, kind = (content.get("name"), content.get("type")) if isinstance(content, dict) else (None, None)
    if not isinstance(names, list) or not all(type(name) is str for name in names) or type(kind) is not str:
        raise DamagedFileError("the name of a column is malformed", found=repr(content)[:60])
    column = StoredColumn(tuple(names), kind)
    if defect := _defect(column):
        raise DamagedFileError(f"the name of a column {defect}", found=ascii(content)[:60])
    return column


def _defect(column: StoredColumn) -> str:
    """Return why a name cannot be in a table of contents; empty if it can."""
    if not 1 <= len(column.path) <= MAX_NAMES or len(column.type) > MAX_TYPE:
        return "has an impossible length"
    try:
        length = len("".join((*column.path, column.type)).encode("utf-8"))
    except UnicodeEncodeError:
        return "is not valid Unicode"
    return "has an impossible length" if length > MAX_NAME_BYTES else ""


def _decode_lock(content: dict[str, Any], what: str) -> Lock | None:
    """Return the lock of an encrypted blob, ``None`` for a plain one. The version in the TOC decides."""
    version = content.get("version")
    if type(version) is not int or version not in (FIELD_VERSION, ENCRYPTED_VERSION):
        raise UnsupportedFeatureError(f"the {what} have an unknown version", found=repr(version)[:40])
    return None if version == FIELD_VERSION else Lock.decode(member(content, "encryption", dict))


def _units_digest(units: dict[str, Any]) -> int:
    """Return the digest of the units TOC that a blob names; -1, which matches no digest, if it is malformed."""
    text = member(units, "digest", str)
    try:
        return int(text, 16) if len(text) == 16 else -1
    except ValueError:
        return -1
