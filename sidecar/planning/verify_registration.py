"""Checks statistics files of a table: each by itself, and against its registration in the metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata as RegisteredBlob
from pyiceberg.table.statistics import StatisticsFile

from sidecar.access import Access
from sidecar.bundle.sketches.count_marks import COUNTS_PROPERTY, CountMarks, digest_of_counts, marked
from sidecar.errors import Problem, SidecarError, problem_in
from sidecar.files import verify_puffin
from sidecar.filters.theta import LARGEST_LG_K, ThetaSketch
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar
from sidecar.iceberg.statistics_files.merge import is_our_theta
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import THETA, is_ours


def registered_file_problems(table: Table, entry: StatisticsFile, access: Access) -> list[Problem]:
    """Check a statistics file by itself and against its registration."""
    path = entry.statistics_path
    problems: list[Problem] = []
    source = access.open(path)
    try:
        problems += verify_puffin(access, source, table.schema().find_column_name)
        try:
            puffin = PuffinReader(source)
        except SidecarError:
            if problems:  # they say why the footer cannot be read
                return problems
            raise
        return [*problems, *_registration_problems(table, entry, puffin), *_sketch_problems(table, puffin, path)]
    except SidecarError as error:
        return [*problems, problem_in(path, str(error), error.column)]
    finally:
        source.close()


def other_file_problems(table: Table, found: FoundSidecar, known: Sequence[Problem], access: Access) -> list[Problem]:
    """Check the other statistics files of the sidecar's snapshot, except those that ``known`` problems name already."""
    problems: list[Problem] = []
    named = {found.statistics.statistics_path, *(problem.file for problem in known)}
    for entry in statistics_of(table)[found.snapshot_id]:
        if entry.statistics_path not in named:
            try:
                problems += registered_file_problems(table, entry, access)
            except SidecarError as error:
                problems.append(problem_in(entry.statistics_path, f"the statistics file cannot be read: {error}"))
    return problems


def _sketch_problems(table: Table, puffin: PuffinReader, path: str) -> list[Problem]:
    """Check that each theta sketch can be read and has the ``ndv`` of its footer entry; sketches have no checksum."""
    problems = []
    expected = puffin.metadata.properties.get(COUNTS_PROPERTY)
    if expected not in (None, digest_of_counts(filter(is_our_theta, puffin.metadata.blobs))):
        problems.append(problem_in(path, "what the footer says of theta sketches is not what was written"))
    for blob in puffin.metadata.blobs:
        if blob.type == THETA:
            column = column_names(table, blob.fields)
            try:
                ndv = ThetaSketch.from_bytes(puffin.read_blob(blob), LARGEST_LG_K, path).ndv
            except SidecarError as error:
                problems.append(problem_in(path, f"the theta sketch cannot be read: {error}", column))
                continue
            if blob.properties.get("ndv", str(ndv)) != str(ndv):
                text = f"the theta sketch estimates {ndv}, but its property ndv is {blob.properties['ndv']}"
                problems.append(problem_in(path, text, column))
    return problems


def _registration_problems(table: Table, entry: StatisticsFile, puffin: PuffinReader) -> list[Problem]:
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
    problems += [problem_in(path, text) for text in _foreign_blob_problems(table, entry, puffin)]
    for blob in entry.blob_metadata:
        key = (blob.type, tuple(blob.fields), blob.snapshot_id, blob.sequence_number)
        faults = []
        if blob.type != THETA:
            faults.append("is registered, and other readers may fail on it")
        if key not in stored:
            faults.append("is registered, but is not in the file")
        elif not (blob.properties or {}).items() <= _with_marks_of(stored[key], blob).items():
            faults.append("is registered with other properties than it has")
        column = column_names(table, blob.fields)
        problems += [problem_in(path, f"the {blob.type} blob {text}", column) for text in faults]
    return problems


def _with_marks_of(stored: dict[str, str], registered: RegisteredBlob) -> dict[str, str]:
    """Return a blob's properties in the footer, for a sketch of ours with the marks that its registration adds."""
    return marked(stored, CountMarks.of(registered.properties)) if is_our_theta(registered) else stored


def _foreign_blob_problems(table: Table, entry: StatisticsFile, puffin: PuffinReader) -> Iterator[str]:
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


def column_names(table: Table, fields: Sequence[int]) -> str | None:
    """Return the names of columns, with the field id of a dropped one; ``None`` for no field."""
    names = [table.schema().find_column_name(field_id) or f"field {field_id}" for field_id in fields]
    return ", ".join(names) or None
