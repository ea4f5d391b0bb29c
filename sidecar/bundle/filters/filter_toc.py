"""The table of contents of filter bundles (``sidecar-sbbf-v1``, ``sidecar-orc-bloom-v1``).

It has the members of every ``field_toc``; ``kind`` is "sbbf" or "orc-bloom". Besides it has

fpp, expected_false_units   the build's targets, for people; absent if unknown. Encrypted bundles omit
               expected_false_units, because it shows how full the filters are
groups         each also has the following. A reader skips a group with any layout, hash, index rule or encoding that it
               does not know, and keeps its units; ``layout`` describes the group's bytes
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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.envelopes.envelope import HEADER_BYTES, integer, member
from sidecar.bundle.field_toc import (
    FieldToc,
    decode_field_toc,
    decode_members,
    described_group,
    encode_field_toc,
    require,
)
from sidecar.bundle.filters.layout import Layout
from sidecar.bundle.filters.positions import BundleGroup
from sidecar.bundle.filters.rules import IndexRule
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.unit_set import unit_ordinals
from sidecar.errors import DamagedFileError


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

    @property
    def members(self) -> int:
        """The number of units that have a filter in the group."""
        return self.layout.members

    @property
    def length(self) -> int:
        """The bytes of the group."""
        return self.layout.length

    def describe(self) -> dict[str, Any]:
        """Return the group as plain data."""
        layout = self.layout
        return {
            "group": self.ordinal,
            "encoding": self.encoding,
            "resolution": self.resolution,
            "layout": layout.name,
            "units": layout.members,
            **self.rule.describe(layout),
            "filter_bytes": self.rule.num_bytes(layout.blocks, layout.tail),
            "offset": self.offset,
            "length": layout.length,
            "lookup_bytes": self.lookup_bytes,
        }

    def ordinals(self) -> npt.NDArray[np.int64]:
        """Return the members' unit ordinals, int64[N], rising."""
        return unit_ordinals(self.units)

    @property
    def lookup_bytes(self) -> int:
        """The most bytes that the lookup of one hash reads."""
        layout, (rows, regions) = self.layout, self.rule.spread(self.layout)
        if layout.sliced:
            return rows * layout.row_stride if layout.rows_sealed else regions * layout.region_stride
        return min(regions, layout.pages) * layout.page_length(0)

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


@dataclass(frozen=True, kw_only=True)
class FilterToc(FieldToc):
    """The decoded TOC of a filter bundle. Units of groups that are named in ``damage`` are unknown."""

    rule_type: type[IndexRule]
    groups: tuple[StoredGroup, ...]
    fpp: float | None = None
    expected_false_units: float | None = None


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
    facts = {} if fpp is None else {"fpp": fpp}
    if key is None and expected_false_units is not None:
        facts["expected_false_units"] = expected_false_units
    offset, described = HEADER_BYTES, []
    for group in groups:
        described.append(_describe(group, offset))
        offset += group.layout.length
    return encode_field_toc(rule.name, header, field_id, described, num_units, units_toc, key, **facts)


def _describe(group: BundleGroup, offset: int) -> dict[str, Any]:
    layout = group.layout
    return {
        **described_group(offset, layout.length, group.units),
        "layout": layout.name,
        "hash": group.rule.hash,
        "index": group.rule.index,
        "encoding": group.encoding,
        "resolution": group.resolution,
        **group.rule.describe(layout),
    }


def decode_filter_toc(rule: type[IndexRule], toc: bytes) -> FilterToc:
    """Decode the verified TOC of a bundle whose groups have rules of the class ``rule``.

    A group that this reader does not understand is skipped and named in ``damage``.
    Raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError`.
    """
    common, groups, content = decode_field_toc(toc, rule.name, "filters", partial(_decode_group, rule))
    fpp, expected = (_number(content, key) for key in ("fpp", "expected_false_units"))
    return FilterToc(**vars(common), rule_type=rule, groups=groups, fpp=fpp, expected_false_units=expected)


def _decode_group(rule_type: type[IndexRule], ordinal: int, content: dict[str, Any], toc: FieldToc) -> StoredGroup:
    require(content, "hash", rule_type.hash)
    require(content, "index", rule_type.index)
    members, units = decode_members(content, toc.num_units)
    rule, layout = rule_type.decode(content, members, toc.sealing)
    require(content, "layout", layout.name)
    offset = integer(content, "offset", HEADER_BYTES)
    if integer(content, "length") != layout.length or offset + layout.length > toc.toc_offset:
        raise DamagedFileError("a group's length does not match its layout or its blob", expected=layout.length)
    encoding, resolution = member(content, "encoding", str), member(content, "resolution", str)
    return StoredGroup(ordinal, rule, offset, encoding, resolution, layout, units)


def _number(content: dict[str, Any], key: str) -> float | None:
    value = content.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
