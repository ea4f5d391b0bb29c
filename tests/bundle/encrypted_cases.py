"""Encrypted bundles and blobs of indexes, with and without their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.positions import GroupMember, plan_groups
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from tests.bundle.cases import (
    SEGMENT,
    TABLE,
    OrcCase,
    pages_of,
    segment_header,
    units_table,
    write_file,
)

MASTER, METADATA = b"planted-master-key-of-32-bytes-!", b"planted-key-metadata"
KEYS = EncryptionKeys(ExplicitKeys({METADATA: MASTER}))

Filters = Mapping[int, "np.ndarray | OrcCase"]


def key_of(field_id: int = 1, segment: bytes = SEGMENT, table: str = TABLE, master: bytes = MASTER) -> FieldKey:
    return FieldKey(master, METADATA, table, segment, field_id)


def bundle(field_id: int, filters: Filters, key: FieldKey | None, tails: Sequence[bytes] | None = None) -> FieldBundle:
    members, parts = [], {}
    for unit, own in filters.items():
        if isinstance(own, OrcCase):
            members.append(GroupMember(unit, own.encoding, own.resolution, len(own.bitset), rule=own.rule))
            parts[unit] = np.frombuffer(own.rule.split(own.bitset)[0], "<u4").reshape(-1, 8)
        else:
            members.append(GroupMember(unit, "int64", "id", own.nbytes + len(tails[unit] if tails else b"")))
            parts[unit] = own
    place = BlobContext(SEGMENT, field_id) if key is None else key.place
    groups = plan_groups(members, place.sealing)
    return FieldBundle(field_id, groups, pages_of(groups, parts, place, tails), 0.01, 1.5, key)


def write(fields: Sequence[FieldBundle], units: int, more: Sequence = (), **header) -> bytes:  # type: ignore[no-untyped-def]
    return write_file([*more, *fields], units_table(units), segment_header(**header))[0]
