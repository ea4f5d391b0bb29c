"""Stage: reads the manifest entries of the files that are left, and asks pyiceberg's own evaluators about them.

Entries of listed manifests come from the records in the units table, walked at once or decoded one by one, or from the
manifest itself if that takes less time. Records are decoded in Python, because pyiceberg's compiled decoder is not safe
with bytes from untrusted writers. If a record of a manifest is wrong, the manifest has to be opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.utils.concurrent import ExecutorFactory

from sidecar.bundle.model import FileEntry
from sidecar.bundle.segment import Segment
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.iceberg.listing import identity_of, live_entries
from sidecar.iceberg.manifests import entry_decoder
from sidecar.planning import bound_columns
from sidecar.planning.files import cheapest
from sidecar.planning.files.file_set import DroppedBy, FileSet, Line, Mask, Ordinals
from sidecar.planning.files.sources import ListedManifests, opened, with_entries
from sidecar.planning.funnel import ManifestUse
from sidecar.planning.tasks import Evaluators

if TYPE_CHECKING:
    from sidecar.iceberg.records.entries import StoredRecords


class WrongRecords(Exception):
    """Entries of manifests in the sidecar are wrong: nothing that was found of their files counts."""

    def __init__(self, places: set[int]) -> None:
        super().__init__()
        self.places = places


def read_entries(
    files: FileSet,
    bound: BooleanExpression,
    evaluators: Evaluators,
    io: FileIO,
    use: ManifestUse,
    warn: Callable[[str], None],
) -> FileSet:
    """Return the files that pyiceberg's evaluators leave, with their entries. Raises :class:`WrongRecords`."""
    is_bounded = any(step.by is DroppedBy.METADATA for step in files.steps)  # columns of bounds were asked
    if is_bounded and len(files) > cheapest.WALKED and bound_columns.asks_bounds_alone(bound):
        walked = _walked(files, evaluators)
        if walked is not None:
            return walked
    if not len(files):
        return files
    source = _listed(files)
    owners = source.manifest_of(files.rows)
    costly = cheapest.open_instead(np.diff(source.spans).ravel(), np.bincount(owners, minlength=len(source.lines)))
    records = iter(source.segment.files(files.rows[~costly[owners]].tolist()))
    live = dict(zip(np.flatnonzero(costly).tolist(), _read_all(io, source, costly), strict=True))
    entries, damaged = dict[int, ManifestEntry](), set[int]()
    for row, owner in zip(files.rows.tolist(), owners.tolist(), strict=True):
        line, listed = source.lines[owner].file, source.listed[owner]
        try:
            if owner in live:
                entry = _at(live[owner], row - listed.first_file, listed.live_files)
            else:
                entry = _decoded(source.segment, listed.schema, line, next(records))
        except SidecarError as error:
            if owner not in damaged:
                what = "because its entries in the sidecar are in doubt"
                warn(f"manifest {line.manifest_path} is opened, {what}: {error}")
            damaged.add(owner)
            continue
        if evaluators.match(line, entry.data_file):
            entries[row] = entry
    if damaged:
        raise WrongRecords({source.places[owner] for owner in damaged})
    use.opened += len(live)
    return with_entries(files, entries)


def opened_manifests(io: FileIO, lines: Sequence[Line], evaluators: Evaluators) -> Iterator[FileSet]:
    """Open manifests in threads; yield the files of each that partitions and bounds leave, in order."""

    def read(asked: tuple[Line, Callable[[DataFile], bool]]) -> FileSet:
        line, in_partition = asked
        live = live_entries(io, line.file)
        files = enumerate((entry, entry.data_file) for entry in live)
        return opened(
            line, len(live), {r: e for r, (e, file) in files if in_partition(file) and evaluators.metrics(file)}
        )

    asked = [(line, evaluators.partition(line.file.partition_spec_id)) for line in lines]
    return ExecutorFactory.get_or_create().map(read, asked)


def _listed(files: FileSet) -> ListedManifests:
    assert isinstance(files.source, ListedManifests)
    return files.source


def _read_all(io: FileIO, source: ListedManifests, chosen: Mask) -> Iterator[list[ManifestEntry]]:
    lines = [source.lines[at].file for at in np.flatnonzero(chosen).tolist()]
    return ExecutorFactory.get_or_create().map(lambda line: live_entries(io, line), lines)


def _at(live: Sequence[ManifestEntry], position: int, count: int) -> ManifestEntry:
    """Return an entry of a listed manifest that was opened: its files have the order that the segment has."""
    if len(live) != count:
        raise DamagedFileError("the manifest has another number of live files", expected=count, found=len(live))
    return live[position]


def _decoded(segment: Segment, schema: int, line: Any, file: FileEntry | None) -> ManifestEntry:
    """Return the entry as pyiceberg reads it.

    Raises :class:`DamagedFileError` unless it is a live entry of the data file that the units table names. A record of
    another file would put that file's rows into the plan in place of this one's.
    """
    if file is None:
        raise DamagedFileError("the record of a file cannot be read")
    if not 0 <= schema < len(segment.schemas):
        raise DamagedFileError("the schema of its records is missing", found=schema)
    entry = entry_decoder(segment.schemas[schema]).decode(file.entry, line)
    data = entry.data_file
    recorded = (*file.identity, file.spec_id)
    decoded = (*identity_of(entry), line.partition_spec_id)
    if decoded != recorded:
        raise DamagedFileError("a record belongs to another file", expected=recorded, found=decoded)
    if entry.status == ManifestEntryStatus.DELETED or data.content != DataFileContent.DATA:
        raise DamagedFileError("a record is not that of a live data file", found=data.file_path)
    return entry


def _walked(files: FileSet, evaluators: Evaluators) -> FileSet | None:
    """Make entries of all records at once; ``None`` if they have to be decoded one by one."""
    from sidecar.iceberg.records.entries import EntryMaker

    source, owners = _listed(files), _listed(files).manifest_of(files.rows)
    segment = source.segment
    table = segment.file_columns(files.rows)
    if table is None:
        return None
    kinds = [
        (line.file.partition_spec_id, entry.schema) for line, entry in zip(source.lines, source.listed, strict=True)
    ]
    number_of = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
    kind_of = np.array([number_of[kind] for kind in kinds])[owners]
    found: list[ManifestEntry | None] = [None] * len(files)
    for (spec_id, schema), at in number_of.items():
        chosen = np.flatnonzero(kind_of == at)
        if not len(chosen):
            continue
        try:
            decoder = entry_decoder(segment.schemas[schema] if 0 <= schema < len(segment.schemas) else "")
            maker = EntryMaker(decoder, _stored_records(table, chosen), evaluators.partition(spec_id))
            _make(maker, source, owners[chosen], chosen, evaluators, found)
        except SidecarError:
            return None  # decoding finds out which record is wrong
    return with_entries(
        files, {row: one for row, one in zip(files.rows.tolist(), found, strict=True) if one is not None}
    )


def _make(
    maker: Any,
    source: ListedManifests,
    owners: Ordinals,
    rows: Ordinals,
    evaluators: Evaluators,
    entries: list[ManifestEntry | None],
) -> None:
    """Put the entries of walked records into ``entries``. Raises if a record is not that of its file."""
    starts = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(owners)], strict=True):
        for row, entry in maker.entries(slice(start, end), source.lines[owners[start]].file):
            # Bounds were asked already, of all files at once; pyiceberg also drops files without rows.
            if entry.data_file.record_count or evaluators.metrics(entry.data_file):
                entries[rows[row]] = entry


def _stored_records(table: pa.Table, rows: Ordinals) -> StoredRecords:
    """Return rows of a table of files (:meth:`Segment.file_columns`) as records to walk."""
    from sidecar.iceberg.records.entries import StoredRecords

    chosen: Any = table if len(rows) == table.num_rows else table.take(pa.array(rows, pa.int64()))
    names = ("file_size_in_bytes", "record_count", "spec_id", "added_snapshot_id", "file_sequence_number")
    numbers = np.stack([chosen[name].to_numpy() for name in names], axis=1)
    return StoredRecords(chosen["entry"].to_pylist(), chosen["file_path"].to_pylist(), numbers)
