"""The stage that reads the manifest entries of the files that are left, and asks pyiceberg's own evaluators about them.

Entries of listed manifests come from the records in the units table, walked at once or decoded one by one, or from the
manifest itself if that takes less time. Records are decoded in Python, because pyiceberg's compiled decoder is not safe
with bytes from untrusted writers. If a record of a manifest is wrong, the manifest has to be opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry
from pyiceberg.utils.concurrent import ExecutorFactory

from sidecar.bundle.model import FileEntry
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.filters.arrays import Ordinals
from sidecar.iceberg.listing import live_entries
from sidecar.iceberg.manifests import entry_decoder
from sidecar.iceberg.recorded_entries import recorded_entry
from sidecar.planning import bound_columns
from sidecar.planning.evaluators import Evaluators
from sidecar.planning.files import cheapest
from sidecar.planning.files.file_set import DroppedBy, FileSet, Line
from sidecar.planning.files.sources import ListedManifests, OpenedManifest, opened

if TYPE_CHECKING:
    from sidecar.iceberg.records.entries import EntryMaker, StoredRecords

ListedFileSet = FileSet[ListedManifests]


class WrongRecords(Exception):
    """Entries of manifests in the sidecar are wrong: nothing that was found of their files counts.

    ``errors`` has the first error of each manifest, by the manifest's place.
    """

    def __init__(self, errors: dict[int, SidecarError]) -> None:
        super().__init__()
        self.errors = errors


def read_entries(files: ListedFileSet, bound: BooleanExpression, evaluators: Evaluators) -> tuple[ListedFileSet, int]:
    """Return the files that pyiceberg's evaluators leave, with their entries, and how many manifests were opened.

    Raises :class:`WrongRecords`.
    """
    is_bounded = any(step.by is DroppedBy.METADATA for step in files.steps)  # columns of bounds were asked
    if is_bounded and len(files) > cheapest.WALKED and bound_columns.asks_bounds_alone(bound):
        walked = _walked(files, evaluators)
        if walked is not None:
            return walked, 0
    if not len(files):
        return files, 0
    return _decoded_entries(files, evaluators)


def _having_entries(entries: dict[int, ManifestEntry], files: ListedFileSet) -> ListedFileSet:
    left = files.having(entries)
    return FileSet(files.source.holding(entries), left.left, left.steps, left.reasons, left.counts)


def _decoded_entries(files: ListedFileSet, evaluators: Evaluators) -> tuple[ListedFileSet, int]:
    """Decode the records of the files one by one, of manifests that take longer to open."""
    source, rows, owners = files.source, files.rows.tolist(), files.source.manifest_of(files.rows)
    live = _opened_instead(source, owners, evaluators.io)
    owner_of = dict(zip(rows, owners.tolist(), strict=True))
    wanted = [row for row, owner in owner_of.items() if owner not in live]
    records = dict(zip(wanted, source.files.entries(wanted), strict=True))
    entries, errors = dict[int, ManifestEntry](), dict[int, SidecarError]()
    for row, owner in owner_of.items():
        try:
            entry = (
                _live_entry(live[owner], source, owner, row)
                if owner in live
                else _recorded(source, owner, records[row])
            )
        except SidecarError as error:
            errors.setdefault(source.lines[owner].place, error)
            continue
        if evaluators.match(source.lines[owner].file, entry.data_file):
            entries[row] = entry
    if errors:
        raise WrongRecords(errors)
    return _having_entries(entries, files), len(live)


def _opened_instead(
    source: ListedManifests, owners: npt.NDArray[np.int64], io: FileIO
) -> dict[int, list[ManifestEntry]]:
    """Return the live entries of manifests that are opened instead, by ordinal; ``owners`` has that of each file."""
    chosen = cheapest.open_instead(source.spans, owners)
    if not chosen:
        return {}
    lines = [source.lines[at].file for at in chosen]
    entries = ExecutorFactory.get_or_create().map(lambda line: live_entries(io, line), lines)
    return dict(zip(chosen, entries, strict=True))


def _live_entry(live: Sequence[ManifestEntry], source: ListedManifests, owner: int, row: int) -> ManifestEntry:
    """Return the entry of a listed manifest that was opened: its files have the order that the segment has."""
    first, end = source.spans[owner].tolist()
    if len(live) != end - first:
        raise DamagedFileError("the manifest has another number of live files", expected=end - first, found=len(live))
    entry: ManifestEntry = live[row - first]
    return entry


def opened_manifests(lines: Sequence[Line], evaluators: Evaluators) -> Iterator[FileSet[OpenedManifest]]:
    """Open manifests in threads; yield the files of each that partitions and bounds leave, in order."""
    for line in lines:  # evaluators of partitions are made before the threads, which would make them twice
        evaluators.partition(line.file.partition_spec_id)
    return ExecutorFactory.get_or_create().map(partial(_opened_manifest, evaluators), lines)


def _opened_manifest(evaluators: Evaluators, line: Line) -> FileSet[OpenedManifest]:
    live, in_partition = live_entries(evaluators.io, line.file), evaluators.partition(line.file.partition_spec_id)
    files = enumerate((entry, entry.data_file) for entry in live)
    return opened(line, len(live), {r: e for r, (e, file) in files if in_partition(file) and evaluators.metrics(file)})


def _recorded(source: ListedManifests, owner: int, file: FileEntry | None) -> ManifestEntry:
    schema = source.files.schema(source.listed[owner].schema)
    return recorded_entry(file, schema, source.lines[owner].file)


def _walked(files: ListedFileSet, evaluators: Evaluators) -> ListedFileSet | None:
    """Make entries of all records at once; ``None`` if they have to be decoded one by one."""
    from sidecar.iceberg.records.entries import EntryMaker

    source = files.source
    table = source.files.file_columns(files.rows)
    if table is None:
        return None
    owners, (kinds, kind_of) = source.manifest_of(files.rows), source.kinds_of(files.rows)
    found: list[ManifestEntry | None] = [None] * len(files)
    for at, (spec_id, schema) in enumerate(kinds):
        chosen = np.flatnonzero(kind_of == at)
        if not len(chosen):
            continue
        try:
            decoder = entry_decoder(source.files.schema(schema) or "")
            maker = EntryMaker(decoder, _stored_records(table, chosen), evaluators.partition(spec_id))
            for row, entry in _walked_entries(maker, source, owners[chosen], evaluators):
                found[chosen[row]] = entry
        except SidecarError:
            return None  # decoding finds out which record is wrong
    rows = files.rows.tolist()
    return _having_entries({row: one for row, one in zip(rows, found, strict=True) if one is not None}, files)


def _walked_entries(
    maker: EntryMaker, source: ListedManifests, owners: npt.NDArray[np.int64], evaluators: Evaluators
) -> Iterator[tuple[int, ManifestEntry]]:
    """Yield the entries of walked records by the ordinals of these. Raises if a record is not that of its file."""
    starts = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(owners)], strict=True):
        for row, entry in maker.entries(slice(start, end), source.lines[owners[start]].file):
            # Bounds were asked already, of all files at once; pyiceberg also drops files without rows.
            if entry.data_file.record_count or evaluators.metrics(entry.data_file):
                yield row, entry


def _stored_records(table: pa.Table, rows: Ordinals) -> StoredRecords:
    """Return rows of a table of files (:meth:`SidecarFiles.file_columns`) as records to walk."""
    from sidecar.iceberg.records.entries import StoredRecords

    chosen: Any = table if len(rows) == table.num_rows else table.take(pa.array(rows, pa.int64()))
    names = ("file_size_in_bytes", "record_count", "spec_id", "added_snapshot_id", "file_sequence_number")
    numbers = np.stack([chosen[name].to_numpy() for name in names], axis=1)
    return StoredRecords(chosen["entry"].to_pylist(), chosen["file_path"].to_pylist(), numbers)
