"""The table of contents of filter bundles (``sidecar-sbbf-v1``, ``sidecar-orc-bloom-v1``).

kind           "sbbf" or "orc-bloom"           version       1; encrypted bundles 3
table          the table's UUID                segment       id, 32 hexadecimal digits
field          field id                        toc_offset    offset of the TOC in the blob
units          {"count": units of the segment, "digest": XXH64 of the units TOC, 16 hexadecimal digits}
encryption     only in encrypted bundles, see ``encryption``
fpp, expected_false_units   the build's targets, for people; absent if unknown. Encrypted bundles omit
               expected_false_units, because it shows how full the filters are
groups         list of
    version    1. A reader skips groups of other versions and keeps their units. It does the same for any
               layout, hash, index rule or encoding that it does not know
    offset, length   of the group's bytes in the blob, which ``layout`` describes
    layout     "sliced" or "transposed"
    hash       "xxh64": seed 0, of the value's PLAIN bytes; "orc": as ORC writers hash the value's key
    index      "parquet" or "orc": which bits a hash tests, see ``rules``
    encoding   how a value becomes bytes: a name in the fixed registry
    resolution how the column was found in the files: "id" or "name:<path>"
    in groups of split-block filters:
        blocks   z, blocks of each filter      tail          odd bytes of each filter after its last block
        widened  whether each member's own number of blocks is recorded
    in groups of ORC filters:
        k        bits that a hash tests        bits          m, bits of each filter
    members    N                               units         the members' unit ordinals, see ``unit_set``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sidecar.bundle.checksum import CHECKED, ENCRYPTED, PieceOverhead
from sidecar.bundle.encryption import (
    ENCRYPTED_VERSION,
    FieldKey,
    Lock,
    Owner,
    bound_part,
    digest_of,
    toc_with_lock,
)
from sidecar.bundle.envelope import (
    HEADER_BYTES,
    VERSION,
    decode_toc,
    integer,
    member,
    segment_bytes,
    toc_digest,
)
from sidecar.bundle.filters.layout import Layout
from sidecar.bundle.filters.positions import BundleGroup
from sidecar.bundle.filters.rules import IndexRule
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.unit_set import count_units, decode_units, encode_units, unit_ordinals
from sidecar.bundle.units.reader import MAX_UNITS
from sidecar.errors import DamagedFileError, UnsupportedFeatureError

MAX_GROUPS = 1 << 16


@dataclass(frozen=True)
class StoredGroup:
    """A group as a TOC describes it. ``units`` is a slice if the members are one run of units."""

    ordinal: int
    rule: IndexRule
    offset: int
    encoding: str
    resolution: str
    layout: Layout
    units: npt.NDArray[np.int64] | slice

    def ordinals(self) -> npt.NDArray[np.int64]:
        """Return the members' unit ordinals, int64[N], rising."""
        return unit_ordinals(self.units)

    def with_own_blocks(self, own_blocks: npt.NDArray[np.int64]) -> BundleGroup:
        """Return the group with each member's own number of blocks, which is stored among the group's bytes."""
        layout = self.layout
        return BundleGroup(
            self.ordinal,
            self.rule,
            self.encoding,
            self.resolution,
            layout.blocks,
            layout.tail,
            self.ordinals(),
            own_blocks,
            layout.sealing,
        )


@dataclass(frozen=True)
class FilterToc:
    """A decoded TOC. ``doubts`` names the groups that this reader skips; their units are unknown."""

    rule_type: type[IndexRule]
    table_uuid: str
    segment_id: bytes
    field_id: int
    num_units: int
    units_digest: int
    toc_offset: int
    groups: tuple[StoredGroup, ...]
    doubts: tuple[str, ...]
    fpp: float | None = None
    expected_false_units: float | None = None
    lock: Lock | None = None
    """The key information of an encrypted bundle."""
    digest: bytes = b""
    """SHA-256 of the TOC without the lock; empty for a plain bundle."""

    def owner(self, units_digest: bytes) -> Owner:
        """Return the owner of the bundle's wrapped key. ``units_digest`` is the SHA-256 of the units blob's TOC."""
        place = self.table_uuid, self.segment_id, self.field_id
        return Owner(*place, self.rule_type.name, units_digest, self.digest)


def encode_filter_toc(
    rule: type[IndexRule],
    header: SegmentHeader,
    field_id: int,
    groups: Sequence[BundleGroup],
    num_units: int,
    units_toc: bytes,
    fpp: float | None = None,
    expected_false_units: float | None = None,
    key: FieldKey | None = None,
) -> tuple[bytes, int]:
    """Return the TOC's bytes and its offset in the blob. All groups have rules of the class ``rule``."""
    offset, described = HEADER_BYTES, []
    for group in groups:
        described.append(_describe(group, offset))
        offset += group.layout.length
    content: dict[str, Any] = {
        "kind": rule.name,
        "version": VERSION if key is None else ENCRYPTED_VERSION,
        "table": header.table_uuid,
        "segment": header.segment_id.hex(),
        "field": field_id,
        "units": {"count": num_units, "digest": f"{toc_digest(units_toc):016x}"},
        "toc_offset": offset,
        "groups": described,
    }
    if fpp is not None:
        content["fpp"] = fpp
    if key is None and expected_false_units is not None:
        content["expected_false_units"] = expected_false_units
    return toc_with_lock(content, key, units_toc), offset


def _describe(group: BundleGroup, offset: int) -> dict[str, Any]:
    layout = group.layout
    return {
        "version": VERSION,
        "offset": offset,
        "length": layout.length,
        "layout": layout.name,
        "hash": group.rule.hash,
        "index": group.rule.index,
        "encoding": group.encoding,
        "resolution": group.resolution,
        **group.rule.describe(layout),
        "members": layout.members,
        "units": encode_units(group.units),
    }


def decode_filter_toc(rule: type[IndexRule], toc: bytes) -> FilterToc:
    """Decode the verified TOC of a bundle whose groups have rules of the class ``rule``.

    A group that this reader does not understand is skipped and named in ``doubts``.
    Raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError`.
    """
    content = decode_toc(toc)
    if content.get("kind") != rule.name:
        raise DamagedFileError(
            "this is not the table of contents of filters", found=repr(content.get("kind"))[:40]
        )
    lock = decode_lock(content, "filters")
    sealing = CHECKED if lock is None else ENCRYPTED
    units = member(content, "units", dict)
    num_units = integer(units, "count", high=MAX_UNITS)
    end = integer(content, "toc_offset")
    groups, doubts = [], []
    for ordinal, described in enumerate(member(content, "groups", list)[:MAX_GROUPS]):
        try:
            groups.append(_decode_group(rule, ordinal, described, num_units, end, sealing))
        except (DamagedFileError, UnsupportedFeatureError) as error:
            doubts.append(f"group {ordinal} is not understood: {error}")
    return FilterToc(
        rule_type=rule,
        table_uuid=member(content, "table", str),
        segment_id=segment_bytes(content),
        field_id=integer(content, "field", -(1 << 31), (1 << 31) - 1),
        num_units=num_units,
        units_digest=units_digest(units),
        toc_offset=end,
        groups=tuple(groups),
        doubts=tuple(doubts),
        fpp=_number(content, "fpp"),
        expected_false_units=_number(content, "expected_false_units"),
        lock=lock,
        digest=b"" if lock is None else digest_of(bound_part(toc, lock)),
    )


def decode_lock(content: dict[str, Any], what: str) -> Lock | None:
    """Return the lock of an encrypted blob, ``None`` for a plain one. The version in the TOC decides.

    Raises :class:`UnsupportedFeatureError` for unknown versions, :class:`DamagedFileError`.
    """
    version = content.get("version")
    if type(version) is not int or version not in (VERSION, ENCRYPTED_VERSION):
        raise UnsupportedFeatureError(f"the {what} have an unknown version", found=repr(version)[:40])
    return None if version == VERSION else Lock.decode(member(content, "encryption", dict))


def _decode_group(
    rule_type: type[IndexRule],
    ordinal: int,
    content: Any,
    num_units: int,
    end: int,
    sealing: PieceOverhead,
) -> StoredGroup:
    if not isinstance(content, dict):
        raise DamagedFileError("a group is not a JSON object")
    for key, known in (("version", VERSION), ("hash", rule_type.hash), ("index", rule_type.index)):
        if content.get(key) != known:
            raise UnsupportedFeatureError(f"unknown {key}", expected=known, found=repr(content.get(key))[:40])
    units = decode_units(content.get("units"), num_units)
    rule, layout = rule_type.decode(content, integer(content, "members", 1, MAX_UNITS), sealing)
    if content.get("layout") != layout.name:
        found = repr(content.get("layout"))[:40]
        raise UnsupportedFeatureError("unknown layout", expected=layout.name, found=found)
    if count_units(units) != layout.members:
        raise DamagedFileError(
            "a group's units do not match its number of members",
            expected=layout.members,
            found=count_units(units),
        )
    offset = integer(content, "offset", HEADER_BYTES)
    if integer(content, "length") != layout.length or offset + layout.length > end:
        raise DamagedFileError(
            "a group's length does not match its layout or its blob",
            expected=layout.length,
        )
    encoding, resolution = member(content, "encoding", str), member(content, "resolution", str)
    return StoredGroup(ordinal, rule, offset, encoding, resolution, layout, units)


def units_digest(units: dict[str, Any]) -> int:
    """Return the digest of the units TOC that a bundle names; -1, which matches no digest, if it is malformed."""
    text = member(units, "digest", str)
    try:
        return int(text, 16) if len(text) == 16 else -1
    except ValueError:
        return -1


def _number(content: dict[str, Any], key: str) -> float | None:
    value = content.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
