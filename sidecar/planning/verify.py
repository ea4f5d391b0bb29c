"""Checks files, or a table's sidecar: structure and checksums, its registration, and its records of data files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata as RegisteredBlob
from pyiceberg.table.statistics import StatisticsFile

from sidecar.access import Access
from sidecar.bundle.sketches.count_marks import CountMarks, marked
from sidecar.conversion.verify_values import DataPlace
from sidecar.crypto.keys import EncryptionKeys
from sidecar.engines.choice import asked_engine, work_engine
from sidecar.engines.work import WorkEngine
from sidecar.errors import Problem, SidecarError, UsageError, problem_in
from sidecar.files import verify_puffin
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.listing import entry_bounds, identity_of, list_snapshot, partition_values, snapshot_of
from sidecar.iceberg.manifests import ManifestContents, RawEntry, read_manifest, read_manifests
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.refs import is_empty, snapshot_id_of, table_at
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar, StatisticsDoubt, look_for_sidecar
from sidecar.iceberg.statistics_files.merge import is_our_theta
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from sidecar.many_files.find import Paths, find_files
from sidecar.many_files.verify import FileCheck, Verification, verify_paths, verify_prefixes
from sidecar.parquet.verify.filters import ValueCheck
from sidecar.planning.files.by_filters import is_listed
from sidecar.planning.verify_values import table_value_problems
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import THETA, is_ours
from sidecar.results.choices import BuildEngine

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO

    from sidecar.bundle.sidecar_file import Segment, SidecarFile

STRUCTURE_ONLY = "structure only; --data looks every value up"
NOTHING = "nothing: there is no sidecar"
NO_SNAPSHOT = "the table has no snapshot yet"

LARGEST_LG_K = 20
"""The largest sketch that is read. A smaller limit would shrink sketches and change their estimates."""


def verify(
    target: Table | Paths,
    *,
    data: bool = False,
    sample: float | None = None,
    against: Paths | None = None,
    aad_prefixes: Sequence[bytes | str] | None = None,
    at: int | str | None = None,
    threads: int | None = None,
    io: FileIO | None = None,
    encryption_keys: EncryptionKeys | None = None,
    engine: BuildEngine | None = None,
    spark: Any = None,
) -> Verification:
    """Check ``target`` for errors: the sidecar of a table, or files (paths, folders, globs).

    ``data`` compares indexes with all values, ``sample`` with those of a share of the row groups or data files.
    ``against`` compares a Puffin file with data files. ``aad_prefixes`` checks instead that encrypted files have these
    prefixes, one each. ``at`` is a snapshot id, branch or tag of the table. ``threads`` files are read at a time.
    ``io`` opens files. ``encryption_keys`` open what is encrypted. ``engine`` and ``spark`` say where values are
    read. Damage is a problem, not raised. Raises the error of a file that is named alone and cannot be read, and of the
    table's own metadata.
    """
    if isinstance(target, Table):
        if against is not None:
            raise UsageError("against is for a Puffin file, not for a table")
        if aad_prefixes is not None:
            listed = list_snapshot(target, snapshot_id_of(target, at)).files
            paths = sorted(file.path for file in listed)
            return verify_prefixes(paths, aad_prefixes, Access(target.io, encryption_keys))
        check = ValueCheck(1.0 if sample is None else sample) if data or sample is not None else None
        return _verify_table(target, at, check, Access(target.io, encryption_keys), engine, spark)
    if at is not None:
        raise UsageError("a snapshot, branch or tag is of a table, not of files", found=at)
    if aad_prefixes is not None:
        every = find_files(target, io, endings=("",))
        return verify_prefixes(every.files, aad_prefixes, Access(io, encryption_keys), every.failed)
    return verify_paths(target, FileCheck(data, sample, Access(io, encryption_keys)), against, threads, engine, spark)


def _verify_table(
    table: Table,
    at: int | str | None,
    check: ValueCheck | None,
    access: Access,
    engine: BuildEngine | None,
    spark: Any,
) -> Verification:
    """Check the sidecar that answers for a snapshot of ``table``, and the manifests that it lists.

    ``check`` looks values up. It is a problem if values were asked for, there are data files and
    nothing was looked up. A bundle without its key is a problem, too. Raises :class:`sidecar.errors.UsageError` for an
    unknown snapshot, and :class:`sidecar.errors.StorageError` or :class:`sidecar.errors.DamagedFileError` if the
    table's own metadata cannot be read.
    """
    asked_engine(engine, spark)  # a wrong name is refused, whatever there is to check
    table, snapshot_id = table_at(table, at)
    if is_empty(table, snapshot_id):
        return Verification((), {}, checked=0, problems=[], scope=NO_SNAPSHOT)
    snapshot = snapshot_of(table, snapshot_id)
    doubts: list[StatisticsDoubt] = []
    found = look_for_sidecar(table, access, snapshot.snapshot_id, doubts)
    problems = [problem_in(doubt.file, doubt.text) for doubt in doubts]
    if found is None:
        if not problems:
            problems.append(problem_in(None, "neither the snapshot nor another one has a sidecar"))
        return Verification((), {}, checked=0, problems=problems, scope=NOTHING)
    try:
        problems += _of_file(table, found.statistics, access)
        problems += _of_other_files(table, found, problems, access)
        problems += _not_believed(found.sidecar, problems)
        checked, files = 1, []
        segments = [_RecordedColumns(segment) for segment in found.sidecar.segments]
        for line in read_manifests(table.io, snapshot.manifest_list):
            if line.content == ManifestContent.DATA:
                listed = _of_listed_manifest(table, line, segments, found.statistics.statistics_path)
                checked += listed is not None
                problems += listed or []
                if check is not None:
                    files += [raw.entry for raw in _live(read_manifest(table.io, line))]
        if check is None:
            return Verification((), {}, checked=checked, problems=problems, scope=STRUCTURE_ONLY)
        size = sum(entry.data_file.file_size_in_bytes for entry in files)
        workers = work_engine(engine, spark, lambda: size)
        problems += _of_values(table, found, files, check, access, workers)
    finally:
        found.sidecar.close()
    looked_up = check.looked_up(len(files) - check.units_total)
    return Verification(
        (),
        {},
        checked=checked,
        problems=problems,
        looked_up=looked_up,
        engine=workers.name,
        engine_reason=workers.reason,
    )


def _of_values(
    table: Table,
    found: FoundSidecar,
    files: Sequence[ManifestEntry],
    check: ValueCheck,
    access: Access,
    engine: WorkEngine,
) -> list[Problem]:
    """Find the values of data files that the sidecar denies; report a problem if nothing could be looked up."""
    places = [
        _place(entry, found.files)
        for entry in files
        if entry.data_file.file_format in (FileFormat.PARQUET, FileFormat.ORC)
    ]
    problems = table_value_problems(table, found, places, check, access, engine)
    if not (problems or check.values or check.indexes) and any(entry.data_file.record_count for entry in files):
        nothing = f"no value was looked up: the sidecar has no index of the snapshot's {len(files)} data files"
        problems.append(problem_in(found.statistics.statistics_path, nothing))
    return problems


def _place(entry: ManifestEntry, files: SidecarFiles) -> DataPlace:
    """Return a data file with the identity that the sidecar lists: an earlier path if the table has moved."""
    file = identity_of(entry)
    listed = file
    for number, ordinal in files.earlier(file).items():
        (known,) = files.segments[number].files([ordinal])
        listed = listed if known is None else file._replace(path=known.path)
    return DataPlace(file.path, listed)


class _RecordedColumns:
    """A segment, and what plans compare with a predicate for many files at once, each read once."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment

    @cached_property
    def bounds(self) -> dict[int, pa.Table]:
        """The bounds of all files by field id, except those that cannot be read."""
        tables = {field_id: self.segment.bounds(field_id) for field_id in self.segment.units.bounded_fields}
        return {field_id: table for field_id, table in tables.items() if table is not None}

    @cached_property
    def partitions(self) -> pa.Table | None:
        """The partition tuples of all files; ``None`` if they cannot be read."""
        return self.segment.partitions()


def _of_listed_manifest(
    table: Table, line: ManifestFile, segments: Sequence[_RecordedColumns], path: str
) -> list[Problem] | None:
    """Check a manifest against each segment that lists it; ``None`` if no segment does."""
    listing = [s for s in segments if any(is_listed(line, m) for m in s.segment.listed_manifests)]
    if not listing:
        return None
    contents = read_manifest(table.io, line)
    problems: list[Problem] = []
    for columns in listing:
        problems += _of_manifest(contents, line, columns.segment, path)
        problems += _of_columns(table, contents, line, columns, path)
    return problems


def _of_other_files(table: Table, found: FoundSidecar, known: Sequence[Problem], access: Access) -> list[Problem]:
    """Check the other statistics files of the sidecar's snapshot, except those that ``known`` problems name already."""
    problems: list[Problem] = []
    named = {found.statistics.statistics_path, *(problem.file for problem in known)}
    for entry in statistics_of(table)[found.snapshot_id]:
        if entry.statistics_path not in named:
            try:
                problems += _of_file(table, entry, access)
            except SidecarError as error:
                problems.append(problem_in(entry.statistics_path, f"the statistics file cannot be read: {error}"))
    return problems


def _of_file(table: Table, entry: StatisticsFile, access: Access) -> list[Problem]:
    """Check the sidecar file by itself and against its registration."""
    path = entry.statistics_path
    problems: list[Problem] = []
    source = access.open(path)
    try:
        problems += verify_puffin(source, access.keys, table.schema().find_column_name)
        try:
            puffin = PuffinReader(source)
        except SidecarError:
            if problems:  # they say it
                return problems
            raise
        return [*problems, *_registered(table, entry, puffin), *_sketches(table, puffin, path)]
    except SidecarError as error:
        return [*problems, problem_in(path, str(error), error.column)]
    finally:
        source.close()


def _not_believed(sidecar: SidecarFile, known: list[Problem]) -> list[Problem]:
    """Find blobs that a reader with these keys does not use, except those that ``known`` problems name already."""
    problems = []
    for blob in (blob for segment in sidecar.segments for blob in segment.blobs):
        try:
            blob.check_key()
        except SidecarError as error:
            if not any(error.what in problem.problem for problem in known):
                column = sidecar.doubts.column(blob.toc.field_id)
                problems.append(problem_in(sidecar.source.name, f"not used: {error}", column))
    return problems


def _sketches(table: Table, puffin: PuffinReader, path: str) -> list[Problem]:
    """Check that each theta sketch can be read and has the ``ndv`` of its footer entry; sketches have no checksum."""
    problems = []
    for blob in puffin.metadata.blobs:
        if blob.type == THETA:
            column = _columns(table, blob.fields)
            try:
                ndv = ThetaSketch.from_bytes(puffin.read_blob(blob), LARGEST_LG_K, path).ndv
            except SidecarError as error:
                problems.append(problem_in(path, f"the theta sketch cannot be read: {error}", column))
                continue
            if blob.properties.get("ndv", str(ndv)) != str(ndv):
                text = f"the theta sketch estimates {ndv}, but its property ndv is {blob.properties['ndv']}"
                problems.append(problem_in(path, text, column))
    return problems


def _registered(table: Table, entry: StatisticsFile, puffin: PuffinReader) -> list[Problem]:
    """Compare the registered sizes and blobs with the file and its footer."""
    path, size = entry.statistics_path, puffin.source.size
    problems = []
    if size != entry.file_size_in_bytes:
        problems.append(problem_in(path, f"registered with {entry.file_size_in_bytes} bytes, but has {size}"))
    footer_size = size - puffin.footer_offset
    if footer_size != entry.file_footer_size_in_bytes:
        text = f"registered with a footer of {entry.file_footer_size_in_bytes} bytes, but it has {footer_size}"
        problems.append(problem_in(path, text))
    stored = {
        (blob.type, blob.fields, blob.snapshot_id, blob.sequence_number): dict(blob.properties)
        for blob in puffin.metadata.blobs
    }
    problems += [problem_in(path, text) for text in _of_another_snapshot(table, entry, puffin)]
    for blob in entry.blob_metadata:
        key = (blob.type, tuple(blob.fields), blob.snapshot_id, blob.sequence_number)
        faults = []
        if blob.type != THETA:
            faults.append("is registered, and other readers may fail on it")
        if key not in stored:
            faults.append("is registered, but is not in the file")
        elif not (blob.properties or {}).items() <= _with_later_marks(stored[key], blob).items():
            faults.append("is registered with other properties than it has")
        column = _columns(table, blob.fields)
        problems += [problem_in(path, f"the {blob.type} blob {text}", column) for text in faults]
    return problems


def _with_later_marks(stored: dict[str, str], registered: RegisteredBlob) -> dict[str, str]:
    """Return a blob's properties in the footer, for a sketch of ours with the marks that its registration adds."""
    return marked(stored, CountMarks.of(registered.properties)) if is_our_theta(registered) else stored


def _of_another_snapshot(table: Table, entry: StatisticsFile, puffin: PuffinReader) -> Iterator[str]:
    """Find blobs of ours whose footer entry names another snapshot than the file was written for.

    A file may be registered again for other snapshots. Of a snapshot that has expired, the file's name has the id.
    """
    snapshot = table.snapshot_by_id(entry.snapshot_id)
    if snapshot is None:
        return
    expected = snapshot.snapshot_id, snapshot.sequence_number or 0
    numbers = {one.snapshot_id: one.sequence_number or 0 for one in table.metadata.snapshots}
    named = entry.statistics_path.rpartition("/")[2].partition("-")[0]
    for blob in puffin.metadata.blobs:
        found = blob.snapshot_id, blob.sequence_number
        if not is_ours(blob.type) or numbers.get(found[0]) == found[1]:
            continue
        if found[0] in numbers or named != str(found[0]):
            yield (
                f"the {blob.type} blob belongs to snapshot {found[0]} (sequence number {found[1]}), but the file is "
                f"registered for {expected[0]} (sequence number {expected[1]})"
            )


def _of_manifest(contents: ManifestContents, line: ManifestFile, segment: Segment, path: str) -> list[Problem]:
    """Compare the entries of a listed manifest with the segment's records of them."""
    listed = next(manifest for manifest in segment.listed_manifests if is_listed(line, manifest))
    live = _live(contents)
    if len(live) != listed.live_files:
        return [problem_in(path, f"lists {listed.live_files} files of {line.manifest_path}, which has {len(live)}")]
    problems = []
    stored = segment.files(range(listed.first_file, listed.first_file + listed.live_files))
    for ordinal, (raw, entry) in enumerate(zip(live, stored, strict=True), listed.first_file):
        file, identity = raw.entry.data_file, identity_of(raw.entry)
        if entry is None:
            problems.append(problem_in(path, f"the entry of {file.file_path} cannot be read"))
        elif entry.entry != raw.raw or entry.identity != identity:
            problems.append(problem_in(path, f"the entry of {file.file_path} differs from the one in its manifest"))
        elif segment.file_ordinal(identity) != ordinal:
            problems.append(problem_in(path, f"the fingerprint of {file.file_path} differs from that of its entry"))
        elif (rows := sum(unit.rows for unit in entry.units)) != file.record_count and entry.units:
            problems.append(
                problem_in(
                    path,
                    f"the row groups of {file.file_path} have {rows} rows, the file has {file.record_count}",
                )
            )
    return problems


def _of_columns(
    table: Table, contents: ManifestContents, line: ManifestFile, columns: _RecordedColumns, path: str
) -> Iterator[Problem]:
    """Compare the bounds and partitions that a segment records of a manifest's files with the entries."""
    first = next(m.first_file for m in columns.segment.listed_manifests if is_listed(line, m))
    live = [raw.entry.data_file for raw in _live(contents)]
    known = [entry_bounds(file) for file in live]
    for field_id, bounds_of_all in columns.bounds.items():
        rows = zip(*(column.to_pylist() for column in bounds_of_all.slice(first, len(live)).columns), strict=True)
        for file, bounds, row in zip(live, known, rows, strict=False):
            # A merge knows no bounds of files of the segments that had none of the field.
            if any(value is not None for value in row) and (field_id not in bounds or row != astuple(bounds[field_id])):
                text = f"the bounds of {file.file_path} differ from those in its manifest"
                yield problem_in(path, text, column=_columns(table, [field_id]))
    spec = table.specs().get(line.partition_spec_id)
    if columns.partitions is None or spec is None:
        return
    for file, recorded in zip(live, columns.partitions.slice(first, len(live)).to_pylist(), strict=False):
        values = partition_values(file, contents.partition_fields, spec)
        if (recorded["spec_id"], tuple(recorded["partition"])) != (line.partition_spec_id, values):
            yield problem_in(path, f"the partition of {file.file_path} differs from the one in its manifest")


def _live(contents: ManifestContents) -> list[RawEntry]:
    return [raw for raw in contents.entries if raw.entry.status != ManifestEntryStatus.DELETED]


def _columns(table: Table, fields: Sequence[int]) -> str | None:
    """Return the names of columns, with the field id of a dropped one; ``None`` for no field."""
    names = [table.schema().find_column_name(field_id) or f"field {field_id}" for field_id in fields]
    return ", ".join(names) or None
