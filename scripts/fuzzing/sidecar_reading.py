"""Everything that reads a sidecar without its table, and the values that a changed one denies."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from xxhash import xxh64_intdigest

from scripts.fuzzing.cases import value_of
from sidecar.bundle.extract import extract_filters
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.inspect import inspect_sidecar
from sidecar.bundle.merging.checking import check_segment
from sidecar.bundle.merging.merge import merge_segments
from sidecar.bundle.merging.merged_units import MergedFile
from sidecar.bundle.merging.source_segment import SourceSegment
from sidecar.bundle.probe import probe_sidecar
from sidecar.bundle.runs import history_of, intact_state_of, state_of, state_property
from sidecar.bundle.segment import Segment
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.verify import verify_sidecar
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.errors import SidecarError
from sidecar.filters.encoding import Encoding
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.probes import FieldQuestion, Probes
from sidecar.filters.values import Probe
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource
from tests.bundle.spec_reader import VECTORS, orc_hash

LOOKUPS = 6
"""Lookups of a vector that are made in each case."""
UNITS = 40
"""Units, files and filters of a segment that are asked for."""


class Lookup(NamedTuple):
    """A value: its bytes by encoding, and the units that a sound sidecar keeps for it."""

    field_id: int
    plain: dict[str, bytes]
    units: frozenset[int]

    @property
    def question(self) -> FieldQuestion:
        """How the value is looked up. In an encoding that the vector does not have it cannot be asked."""
        probes: Probes = defaultdict(lambda: [Probe("unknown", ())])
        for name, plain in self.plain.items():
            is_orc = name.startswith("orc/")
            encoding = OrcEncoding.parse(name) if is_orc else Encoding.parse(name)
            probes[encoding] = [Probe("probe", (orc_hash(name, plain) if is_orc else xxh64_intdigest(plain),))]
        return FieldQuestion(self.field_id, probes)


class Truth(NamedTuple):
    """What a vector must answer."""

    table: str
    masters: dict[str, str]
    lookups: tuple[Lookup, ...]
    files: tuple[tuple[DataFileIdentity, int, int], ...]
    """Each file with its first unit and its number of units."""

    @property
    def keys(self) -> EncryptionKeys | None:
        if not self.masters:
            return None
        return EncryptionKeys(ExplicitKeys({n.encode(): bytes.fromhex(key) for n, key in self.masters.items()}))


@cache
def truth_of(name: str) -> Truth:
    """The answers that are frozen beside a vector."""
    said = json.loads((VECTORS / f"{name}.expected.json").read_text())
    lookups = [
        Lookup(one["field"], {e: bytes.fromhex(p) for e, p in one["plain"].items()}, frozenset(one["units"]))
        for one in said["lookups"]
    ]
    files = [
        (
            DataFileIdentity(
                f["path"], f["file_size"], f["record_count"], f["added_snapshot_id"], f["file_sequence_number"]
            ),
            *f["units"],
        )
        for f in said["files"]
    ]
    step = max(len(lookups) // LOOKUPS, 1)
    return Truth(said["table_uuid"], said.get("master_keys", {}), tuple(lookups[::step]), tuple(files))


def opened(data: bytes, truth: Truth) -> SidecarFile:
    return SidecarFile.open(BytesSource(data, "it.stats"), table_uuid=truth.table, encryption_keys=truth.keys)


def answers_of(data: bytes, truth: Truth) -> list[Any]:
    """What a plan asks, as plain values that compare."""
    sidecar = opened(data, truth)
    found: list[Any] = []
    for segment in sidecar.segments:
        found += [segment.might_match(one.question).nonzero()[0].tolist() for one in truth.lookups]
        found += [[segment.file_ordinal(file) for file, _, _ in truth.files], segment.unit_ranges.tolist()]
        units = range(min(segment.num_units, UNITS))
        found += [segment.page_indexes(field_id, units) for field_id in sorted(segment.page_index_blobs)]
        found += [segment.row_indexes(field_id, units) for field_id in sorted(segment.row_index_blobs)]
    return [*found, *sidecar.warnings]


def denied(data: bytes, truth: Truth) -> list[str]:
    """The files that a plan of some lookup would drop, although a sound sidecar keeps them."""
    try:
        sidecar = opened(data, truth)
    except SidecarError:
        return []
    found = []
    for lookup in truth.lookups:
        for segment in sidecar.vouched_segments([lookup.field_id]):
            keep = segment.might_match(lookup.question)
            for file, first, count in truth.files:
                if lookup.units.isdisjoint(range(first, first + count)):
                    continue
                ordinal = segment.file_ordinal(file)
                if ordinal is None:
                    continue  # a file that is not listed is kept
                start, end = segment.unit_ranges[ordinal : ordinal + 2].tolist()
                if not keep[start:end].any():
                    found.append(f"{file.path} for a value of field {lookup.field_id}")
    return found


def read_everything(data: bytes, truth: Truth) -> None:
    """Give a sidecar to everything that reads one without its table."""
    source = BytesSource(data, "it.stats")
    sidecar = opened(data, truth)
    answers_of(data, truth)
    for segment in sidecar.segments:
        for call in _questions(segment):
            value_of(call)
        value_of(lambda segment=segment: _merged(sidecar, segment))  # type: ignore[misc]
    verify_sidecar(source, encryption_keys=truth.keys)
    json.dumps(inspect_sidecar(source, fill=True, encryption_keys=truth.keys).to_dict())
    fields = sorted({one.field_id for one in truth.lookups}) or [1]
    field_id = str(fields[len(data) % len(fields)])
    value_of(lambda: probe_sidecar(source, field_id, (20, "20")[len(data) % 2], encryption_keys=truth.keys))
    properties = sidecar.puffin.metadata.properties
    for state in (state_of(properties), intact_state_of(properties)):
        if state is not None:
            state_property(state.lacking({(1, "bloom"): 1}))
    json.dumps([run.to_dict() for run in history_of(properties)])


def _questions(segment: Segment) -> Iterator[Callable[[], object]]:
    files = list(range(min(segment.num_files, UNITS)))
    yield lambda: segment.files(files)
    yield lambda: [one.counts() for one in segment.coverages]
    yield lambda: [segment.coverages, segment.listed_manifests, segment.schemas, segment.partitions(), segment.memory]
    for section in segment.units.toc.sections:
        if section.name == "bounds":
            yield lambda field_id=section.field_id: segment.bounds(field_id)
    for blob in segment.sketch_blobs.values():
        yield lambda blob=blob: blob.load()
        yield lambda blob=blob: list(blob.verify())
    for bundle in (bundle for field_id in segment.fields for bundle in segment.bundles_of(field_id)):
        for group in bundle.toc.groups[:3]:
            yield lambda b=bundle, g=group: list(extract_filters(b, g, g.ordinals()[:UNITS].tolist()))


def _merged(sidecar: SidecarFile, segment: Segment) -> None:
    """Merge the segment with itself, as compaction does with two."""
    checked = check_segment(SourceSegment(sidecar, segment))
    files = enumerate(segment.files(range(min(segment.num_files, UNITS))))
    live = [(number, file) for number, file in files if file and segment.file_ordinal(file.identity) == number]
    merged = [MergedFile(file, {0: number}) for number, file in live]
    with suppress(SidecarError):
        merge_segments(PuffinWriter(_Nowhere()), [checked], merged, [], [], snapshot_id=1, sequence_number=1, keys=None)


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return len(data)

    def flush(self) -> None:
        pass


def vector(name: str) -> bytes:
    return Path(VECTORS / f"{name}.stats").read_bytes()
