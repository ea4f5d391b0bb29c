"""Encrypted segments are merged with their keys, under a fresh data key, and never with what anybody could write."""

from __future__ import annotations

import pytest

from sidecar.bundle.merging.checking import check_segment
from sidecar.bundle.merging.merge import may_merge
from sidecar.bundle.merging.source_segment import SourceSegment
from sidecar.bundle.verify import verify_sidecar
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.errors import UsageError
from sidecar.storage.source import BytesSource
from tests.bundle.cases import group_filters
from tests.bundle.merging.lake import Lake, OwnFilter, Part, merged, only, opened, write_parts

MASTER, METADATA = b"planted-master-key-of-32-bytes-!", b"planted-key-metadata"
KEYS = EncryptionKeys(ExplicitKeys({METADATA: MASTER, b"other": bytes(32)}), allow_plaintext_indexes=True)


def two_parts(lake: Lake) -> list[Part]:
    """Field 1 is to be encrypted, field 4 is plain. Filters are sliced in the first part, transposed in the second."""
    filters = {file: OwnFilter(bytes([file]) * 64 * (1 + file % 2)) for file in range(90)}
    ranges = range(80), range(80, 90)
    return [Part(r, {i: {(f, 0): filters[f] for f in r} for i in (1, 4)}, number=n) for n, r in enumerate(ranges)]


def test_encrypted_filters_are_merged_under_a_fresh_key() -> None:
    lake = Lake([1] * 90)
    data, _ = write_parts(lake, two_parts(lake), {1: (MASTER, METADATA)})
    old = opened(data, KEYS, strict=True)
    written = merged(lake, old, list(range(90)), KEYS)
    assert verify_sidecar(BytesSource(written, "merged"), encryption_keys=KEYS) == []
    segment = only(opened(written, KEYS, strict=True))
    for field_id in (1, 4):
        (group,) = segment.fields[field_id]
        found = dict(group_filters(segment, field_id, group))
        assert found == {file: bytes([file]) * 64 * (1 + file % 2) for file in range(90)}
    locks = [bundle.toc.lock for s in (*old.segments, segment) for bundle in s.bundles_of(1)]
    assert {lock.key_metadata for lock in locks if lock} == {METADATA}
    assert len({lock.wrapped_key for lock in locks if lock}) == 3
    assert segment.bundles[4].toc.lock is None
    assert segment.bundles[1].toc.expected_false_units is None


def test_without_its_key_a_segment_cannot_be_merged() -> None:
    lake = Lake([1] * 90)
    data, _ = write_parts(lake, two_parts(lake), {1: (MASTER, METADATA)})
    for keys in (None, EncryptionKeys(ExplicitKeys({METADATA: bytes(32)}))):
        stored = opened(data, keys)
        with pytest.raises(UsageError, match="encrypted"):
            check_segment(SourceSegment(stored, stored.segments[0]))


def test_a_segment_that_anybody_could_have_written_does_not_get_a_key() -> None:
    """Its units table would be vouched for by the key of the other segment."""
    lake = Lake([1] * 90)
    first, second = two_parts(lake)
    del second.filters[1]
    data, _ = write_parts(lake, [first, second], {1: (MASTER, METADATA)})
    stored = opened(data, KEYS)
    keys = [SourceSegment(stored, segment).key_metadata for segment in stored.segments]
    assert keys == [{1: METADATA, 4: None}, {4: None}]
    with pytest.raises(UsageError, match="different keys"):
        merged(lake, stored, list(range(90)), KEYS)
    nothing: dict[int, bytes | None] = {}
    with pytest.raises(UsageError, match="different keys"):  # also if it has no index at all
        merged(
            lake, opened(write_parts(lake, [Part(range(80, 90)), first], {1: (MASTER, METADATA)})[0], KEYS), [1], KEYS
        )
    assert may_merge(nothing, {4: None})


def test_segments_under_different_keys_stay_apart() -> None:
    assert may_merge({1: METADATA}, {1: METADATA, 4: None})
    assert not may_merge({1: METADATA}, {1: b"other"})
    assert not may_merge({1: METADATA, 4: METADATA}, {1: METADATA, 4: None})
    assert may_merge({1: METADATA}, {4: b"other"})
