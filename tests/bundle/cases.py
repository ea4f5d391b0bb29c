"""Filters, tables and whole sidecar files to test with, and the slow twins of what is tested."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.extract import extract_filters
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.filters.positions import BundleGroup, GroupMember, plan_groups
from sidecar.bundle.filters.rules import OrcRule
from sidecar.bundle.filters.slicing import gather_blocks, group_pages
from sidecar.bundle.model import (
    Coverage,
    CoverageState,
    FieldBounds,
    FileEntry,
    ListedManifest,
    SegmentHeader,
    UnitEntry,
    UnitsTable,
    UnitState,
)
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.bundle.writer import copy_segments, write_segment, write_toc
from sidecar.errors import UsageError
from sidecar.filters.probes import AnyEncoding, FieldQuestion, Probes
from sidecar.filters.values import Probe
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource

SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
SEGMENT = bytes(range(16))
TABLE = "11111111-2222-3333-4444-555555555555"
SNAPSHOT, SEQUENCE = 77, 5
PLACE = {"snapshot_id": SNAPSHOT, "sequence_number": SEQUENCE}

Blocks = npt.NDArray[np.uint32]


def hash_of(value: int) -> int:
    """XXH64 of a long, as the planning side hashes it."""
    return xxhash.xxh64_intdigest(value.to_bytes(8, "little", signed=True))


def twin_insert(blocks: Blocks, value_hash: int) -> None:
    """Parquet specification, "Bloom filter", word for word."""
    block = blocks[((value_hash >> 32) * len(blocks)) >> 32]
    for word, salt in enumerate(SALT):
        block[word] |= np.uint32(1 << (((value_hash & 0xFFFFFFFF) * salt & 0xFFFFFFFF) >> 27))


def twin_check(blocks: Blocks, value_hash: int) -> bool:
    block = blocks[((value_hash >> 32) * len(blocks)) >> 32]
    return all(
        int(block[word]) >> (((value_hash & 0xFFFFFFFF) * salt & 0xFFFFFFFF) >> 27) & 1
        for word, salt in enumerate(SALT)
    )


def filter_of(values: Sequence[int], blocks: int) -> Blocks:
    out = np.zeros((blocks, 8), np.uint32)
    for value in values:
        twin_insert(out, hash_of(value))
    return out


def random_filters(rng: np.random.Generator, sizes: Sequence[int], fill: float = 0.5) -> list[Blocks]:
    """Filters of these numbers of blocks whose bits are set by chance."""
    return [np.packbits(rng.random((size, 256)) < fill, axis=1).view(np.uint32).reshape(size, 8) for size in sizes]


def members_of(filters: Sequence[Blocks], tails: Sequence[bytes] | None = None) -> list[GroupMember]:
    return [
        GroupMember(unit, "int64", "id", own.nbytes + len(tails[unit] if tails else b""))
        for unit, own in enumerate(filters)
    ]


def pages_of(
    groups: Sequence[BundleGroup],
    filters: Sequence[Blocks] | Mapping[int, Blocks],
    place: BlobContext,
    tails: Sequence[bytes] | None = None,
) -> bytes:
    """All pages of all groups, in order, one piece a call."""
    return [
        page
        for group in groups
        for page in group_pages(
            group,
            place,
            lambda first, count, group=group: gather_blocks(
                group, [filters[unit] for unit in group.units.tolist()], first, count
            ),
            [tails[unit] for unit in group.units] if tails else None,
        )
    ]


def known_as(file: FileEntry, **parts: Any) -> FileEntry:
    """The file with another identity."""
    return replace(file, identity=file.identity._replace(**parts))


def units_table(files: int, units_per_file: Sequence[int] | None = None) -> UnitsTable:
    """A table of small files in manifests of 50; the first two fields are indexed."""
    counts = units_per_file or [1] * files
    entries = [
        FileEntry(
            DataFileIdentity(
                f"file:/lake/db/t/data/part-{ordinal:05}.parquet",
                1000 + ordinal,
                100 * counts[ordinal],
                1000 + ordinal // 50,
                1 + ordinal % SEQUENCE,
            ),
            spec_id=0,
            manifest=ordinal // 50,
            entry=b"avro record %d" % ordinal,
            units=tuple(UnitEntry(group, group * 100, 100) for group in range(counts[ordinal])),
            partition=(ordinal.to_bytes(4, "little"), None),
            bounds={1: FieldBounds(b"\0" * 8, b"\xff" * 8, 100, 0, None), 4: FieldBounds(upper=b"z")},
        )
        for ordinal in range(files)
    ]
    manifests = [
        ListedManifest(
            path=f"file:/lake/db/t/metadata/m{number}.avro",
            length=5000 + number,
            spec_id=0,
            sequence_number=number + 1,
            min_sequence_number=1,
            added_snapshot_id=1000 + number,
            live_files=min(50, files - number * 50),
            live_rows=sum(counts[number * 50 : number * 50 + 50]) * 100,
            first_file=number * 50,
            schema=0,
        )
        for number in range(-(-files // 50))
    ]
    units = sum(counts)
    indexed = CoverageState(UnitState.INDEXED, "id")
    coverage = [
        Coverage.of(1, "bloom", [indexed] * units),
        Coverage.of(4, "bloom", [indexed if unit % 3 else CoverageState("too large") for unit in range(units)]),
    ]
    return UnitsTable(entries, manifests, ['{"type":"record","name":"manifest_entry","fields":[]}'], coverage)


def segment_header(segment: bytes = SEGMENT, table: str = TABLE) -> SegmentHeader:
    return SegmentHeader(table, SNAPSHOT, SEQUENCE, "2026-01-02T03:04:05Z", segment)


def field_bundle(
    field_id: int, filters: Sequence[Blocks], segment: bytes = SEGMENT, tails: Sequence[bytes] | None = None
) -> FieldBundle:
    groups = plan_groups(members_of(filters, tails))
    pages = pages_of(groups, filters, BlobContext(segment, field_id), tails)
    return FieldBundle(field_id, groups, pages, 0.01, 1.5)


def write_file(fields: Sequence[Any], table: UnitsTable, header: SegmentHeader | None = None) -> tuple[bytes, int]:
    """A sidecar of one segment, and the length of its footer."""
    sink = io.BytesIO()
    puffin = PuffinWriter(sink)
    entries = write_segment(puffin, header or segment_header(), table, fields, **PLACE)
    write_toc(puffin, entries, **PLACE)
    written = puffin.finish()
    return sink.getvalue(), written.footer_size


def copy_file(*sidecars: SidecarFile, place: Mapping[str, int] = PLACE, **options: Any) -> tuple[bytes, int]:
    """A sidecar with the segments of others, copied as bytes, and the length of its footer."""
    sink = io.BytesIO()
    puffin = PuffinWriter(sink)
    entries = [entry for one in sidecars for entry in copy_segments(one, puffin, **options, **place)]
    write_toc(puffin, entries, **place)
    written = puffin.finish()
    return sink.getvalue(), written.footer_size


def open_bytes(data: bytes, footer: int | None = None, **options: object) -> SidecarFile:
    return SidecarFile.open(BytesSource(data, "test.stats"), footer_length=footer, **options)


def probe_for(field_id: int, *values: int) -> FieldQuestion:
    return ask_hash(field_id, *map(hash_of, values))


@dataclass(frozen=True)
class OrcCase:
    """An ORC filter by its bytes alone, as a file has them."""

    bitset: bytes
    k: int = 3
    encoding: str = "orc/long"
    resolution: str = "id"

    @property
    def rule(self) -> OrcRule:
        return OrcRule(self.k, len(self.bitset) * 8)

    def holds(self, value_hash: int) -> bool:
        """ORC's BloomFilter.testHash, word for word."""
        return all(
            self.bitset[bit >> 3] >> (bit & 7) & 1 for bit in twin_positions(value_hash, self.k, 8 * len(self.bitset))
        )


def twin_positions(value_hash: int, k: int, bits: int) -> list[int]:
    """BloomFilter.addHash of ORC Java, with the wrapping of its ints written out."""

    def as_int(number: int) -> int:
        number &= 0xFFFFFFFF
        return number - (1 << 32) if number >> 31 else number

    hash1, hash2 = as_int(value_hash), as_int(value_hash >> 32)
    found = []
    for i in range(1, k + 1):
        combined = as_int(hash1 + i * hash2)
        found.append((~combined if combined < 0 else combined) % bits)
    return found


def orc_case(values: Sequence[int], bits: int, k: int = 3, **others: str) -> OrcCase:
    """The filter of these hashes."""
    bitset = bytearray(bits // 8)
    for value in values:
        for bit in twin_positions(value, k, bits):
            bitset[bit >> 3] |= 1 << (bit & 7)
    return OrcCase(bytes(bitset), k, **others)


def random_orc(rng: np.random.Generator, bits: int, k: int = 3, fill: float = 0.8) -> OrcCase:
    """A filter whose bits are set by chance."""
    return OrcCase(np.packbits(rng.random(bits) < fill).tobytes(), k)


def mixed_bundle(field_id: int, filters: Mapping[int, Blocks | OrcCase]) -> FieldBundle:
    """Filters of either kind by unit, laid out as a build does it."""
    members, parts = [], {}
    for unit, own in filters.items():
        if isinstance(own, OrcCase):
            size = len(own.bitset)
            members.append(GroupMember(unit, own.encoding, own.resolution, size, rule=own.rule))
            blocks, tail = own.rule.split(own.bitset)
        else:
            members.append(GroupMember(unit, "int64", "id", own.nbytes))
            blocks, tail = own.tobytes(), b""
        assert not tail
        parts[unit] = np.frombuffer(blocks, "<u4").reshape(-1, 8)
    groups = plan_groups(members)
    return FieldBundle(field_id, groups, pages_of(groups, parts, BlobContext(SEGMENT, field_id)), 0.01, 1.5)


def ask_hash(field_id: int, *hashes: int) -> FieldQuestion:
    """A question for these very hashes, whatever the encoding is."""
    return FieldQuestion(field_id, known_probes(Probe("probe", hashes)))


def known_probes(*probes: Probe) -> Probes:
    """The same probes, whatever the encoding is."""
    return defaultdict(lambda: probes)


class OneProbe(dict[AnyEncoding, Sequence[Probe]]):
    """A value as a test makes a probe of it in each encoding."""

    def __init__(self, make: Callable[[AnyEncoding], Probe]) -> None:
        self.make = make

    def __missing__(self, encoding: AnyEncoding) -> list[Probe]:
        return [self.make(encoding)]


def extract_filter(segment: Segment, field_id: int, unit: int) -> bytes:
    """Return the bitset of one unit's filter. Reads the unit's whole group.

    Raises :class:`UsageError` if the unit has no filter or the key of an encrypted bundle is missing,
    :class:`DamagedFileError` for a wrong checksum.
    """
    for group in segment.fields.get(field_id, ()):
        if (group.ordinals() == unit).any():
            return next(group_filters(segment, field_id, group, [unit]))[1]
    raise UsageError(f"unit {unit} has no filter for field {field_id}")


def group_filters(
    segment: Segment, field_id: int, group: StoredGroup, units: Sequence[int] | None = None
) -> Iterator[tuple[int, bytes]]:
    """The filters of a group of a field."""
    (bundle,) = (one for one in segment.bundles_of(field_id) if any(group is own for own in one.toc.groups))
    return extract_filters(bundle, group, units)
