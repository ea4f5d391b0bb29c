"""Random segments over the files of one table, the filters that they hold, and how they are merged."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.positions import GroupMember, plan_groups
from sidecar.bundle.filters.rules import SPLIT_BLOCK, IndexRule, OrcRule
from sidecar.bundle.filters.slicing import gather_blocks, group_pages
from sidecar.bundle.indexes.index_blob import FieldIndexes
from sidecar.bundle.merging.checking import check_segment
from sidecar.bundle.merging.merge import merge_segments
from sidecar.bundle.merging.merged_units import MergedFile
from sidecar.bundle.merging.source_segment import SourceSegment
from sidecar.bundle.model import (
    UNLISTED,
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
from sidecar.bundle.toc import write_toc
from sidecar.bundle.writer import write_segment
from sidecar.crypto.keys import EncryptionKeys
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource
from tests.bundle.cases import TABLE, twin_check, twin_positions

PLACE = {"snapshot_id": 77, "sequence_number": 99}
SCHEMA = '{"type":"record","name":"manifest_entry","fields":[]}'
Key = tuple[int, int]
"""A unit of the table: ordinal of the file, row group."""


@dataclass(frozen=True)
class OwnFilter:
    """A filter as a data file has it."""

    bitset: bytes
    rule: IndexRule = SPLIT_BLOCK
    encoding: str = "int64"
    resolution: str = "id"

    def holds(self, value_hash: int) -> bool:
        """Whether the filter admits the hash, by the specifications' own words."""
        if isinstance(self.rule, OrcRule):
            return all(
                self.bitset[bit >> 3] >> (bit & 7) & 1
                for bit in twin_positions(value_hash, self.rule.k, self.rule.bits)
            )
        blocks = np.frombuffer(self.bitset[: len(self.bitset) // 32 * 32], np.uint32).reshape(-1, 8)
        return twin_check(blocks, value_hash)


@dataclass
class Part:
    """A segment to write: its files, in order, and what it holds of their units."""

    files: Sequence[int]
    filters: dict[int, dict[Key, OwnFilter]] = field(default_factory=dict)
    indexes: Callable[[Mapping[Key, int], bytes], Iterable[FieldIndexes]] = lambda units, segment: ()
    coverage: dict[tuple[int, str], dict[Key, CoverageState]] = field(default_factory=dict)
    number: int = 0
    unlisted: frozenset[int] = frozenset()
    """Files whose manifest entry is not recorded."""


@dataclass
class Lake:
    """Files of a table in manifests of ``per_manifest``, each with some units."""

    counts: Sequence[int]
    per_manifest: int = 10

    def entry(self, ordinal: int, manifest: int = UNLISTED) -> FileEntry:
        count = self.counts[ordinal]
        return FileEntry(
            DataFileIdentity(
                f"file:/lake/t/data/part-{ordinal:05}.parquet",
                1000 + ordinal,
                100 * count,
                1000 + ordinal,
                1 + ordinal % 5,
            ),
            spec_id=0,
            manifest=manifest,
            entry=b"avro record %d" % ordinal,
            units=tuple(UnitEntry(group, group * 100, 100) for group in range(count)),
            partition=(ordinal.to_bytes(4, "little"),),
            bounds={1: FieldBounds(b"\0" * 8, ordinal.to_bytes(8, "little"), 100, 0, None)},
        )

    def units(self, files: Iterable[int]) -> dict[Key, int]:
        """Units of these files by their ordinals in a segment that lists them."""
        keys = [(file, group) for file in files for group in range(self.counts[file])]
        return {key: ordinal for ordinal, key in enumerate(keys)}

    def manifests(self, files: Sequence[int]) -> list[ListedManifest]:
        """The manifests whose files all are at the start of ``files``, in order."""
        found = []
        for number in range(-(-len(self.counts) // self.per_manifest)):
            first = number * self.per_manifest
            own = list(range(first, min(first + self.per_manifest, len(self.counts))))
            at = len(found) * self.per_manifest
            if list(files[at : at + len(own)]) == own:
                rows = sum(self.counts[file] for file in own) * 100
                path = f"file:/lake/t/metadata/m{number}.avro"
                found.append(ListedManifest(path, 5000, 0, 1, 1, 9, len(own), rows, at, 0))
        return found


def write_parts(
    lake: Lake, parts: Sequence[Part], keys: Mapping[int, tuple[bytes, bytes]] | None = None
) -> tuple[bytes, int]:
    """A sidecar with a segment for each part, oldest first. ``keys`` has master key and metadata of fields."""
    sink = io.BytesIO()
    puffin = PuffinWriter(sink)
    entries = []
    for number, part in enumerate(parts):
        segment = bytes([number, part.number]) * 8
        header = SegmentHeader(TABLE, 70 + number, 90 + number, "2026-01-02T03:04:05Z", segment)
        units = lake.units(part.files)
        manifests = lake.manifests(part.files)
        owner = {
            part.files[at]: number
            for number, m in enumerate(manifests)
            for at in range(m.first_file, m.first_file + m.live_files)
        }
        files = [lake.entry(file, owner.get(file, UNLISTED)) for file in part.files]
        files = [
            replace(entry, entry=b"") if file in part.unlisted else entry
            for file, entry in zip(part.files, files, strict=True)
        ]
        coverage = [Coverage.of(*key, (states[unit] for unit in units)) for key, states in part.coverage.items()]
        coverage += [
            Coverage.of(field_id, "bloom", (state_of(own.get(unit)) for unit in units))
            for field_id, own in part.filters.items()
            if (field_id, "bloom") not in part.coverage
        ]
        made = {i: FieldKey(*keys[i], TABLE, segment, i) for i in part.filters if keys and i in keys}
        bundles = [bundle_of(i, own, units, segment, made.get(i)) for i, own in part.filters.items() if own]
        table = UnitsTable(files, manifests, [SCHEMA], coverage)
        entries += write_segment(puffin, header, table, [*part.indexes(units, segment), *bundles], **PLACE)
    write_toc(puffin, entries, **PLACE)
    written = puffin.finish()
    return sink.getvalue(), written.footer_size


def state_of(own: OwnFilter | None) -> CoverageState:
    return CoverageState("too large", "id") if own is None else CoverageState(UnitState.INDEXED.value, own.resolution)


def bundle_of(
    field_id: int, own: Mapping[Key, OwnFilter], units: Mapping[Key, int], segment: bytes, key: FieldKey | None
) -> FieldBundle:
    place = BlobContext(segment, field_id) if key is None else key.place
    by_unit = {units[unit]: found for unit, found in own.items()}
    groups = plan_groups(
        (GroupMember(u, f.encoding, f.resolution, len(f.bitset), rule=f.rule) for u, f in by_unit.items()),
        place.sealing,
    )
    pages = []
    for group in groups:
        parts = [by_unit[unit].rule.split(by_unit[unit].bitset) for unit in group.units.tolist()]
        blocks = [np.frombuffer(body, np.uint32).reshape(-1, 8) for body, _ in parts]

        def load(first: int, count: int, group: Any = group, blocks: Any = blocks) -> Any:
            return gather_blocks(group, blocks, first, count)

        pages += group_pages(group, place, load, [tail for _, tail in parts])
    return FieldBundle(field_id, groups, pages, 0.01, 0.01 * len(by_unit), key)


def merged(
    lake: Lake,
    stored: SidecarFile,
    live: Sequence[int],
    keys: EncryptionKeys | None = None,
    numbers: Sequence[int] | None = None,
    **options: Any,
) -> bytes:
    """The sidecar with its segments (or those with ``numbers``) merged into one, of the files in ``live``."""
    chosen = stored.segments if numbers is None else [stored.segments[number] for number in numbers]
    sources = [check_segment(SourceSegment(stored, segment)) for segment in chosen]
    places = {
        file: {
            n: at
            for n, s in enumerate(sources)
            if (at := s.segment.file_ordinal(lake.entry(file).identity)) is not None
        }
        for file in live
    }
    listed = [file for file in live if places[file]]
    manifests = lake.manifests(listed)
    whole = sum(manifest.live_files for manifest in manifests)
    numbers_of = [n for n, manifest in enumerate(manifests) for _ in range(manifest.live_files)]
    files = [
        MergedFile(lake.entry(file, numbers_of[at] if at < whole else UNLISTED), places[file])
        for at, file in enumerate(listed)
    ]
    sink = io.BytesIO()
    puffin = PuffinWriter(sink)
    entries = merge_segments(puffin, sources, files, manifests, [SCHEMA], keys=keys, **PLACE, **options)
    write_toc(puffin, entries, **PLACE)
    puffin.finish()
    return sink.getvalue()


def opened(data: bytes, keys: EncryptionKeys | None = None, strict: bool = False) -> SidecarFile:
    return SidecarFile.open(BytesSource(data, "test.stats"), strict=strict, encryption_keys=keys)


def only(sidecar: SidecarFile) -> Segment:
    (segment,) = sidecar.segments
    return segment
