"""Is a table's sidecar sound: its own structure and checksums, what is registered of it, what it says of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import FileFormat, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.convert.verify_values import sidecar_value_problems
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError
from sidecar.files import verify_file
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.internals import RawEntry, read_manifest, read_manifests
from sidecar.iceberg.listing import identity_of, snapshot_of
from sidecar.iceberg.refs import snapshot_id_of
from sidecar.iceberg.statistics import find_sidecar
from sidecar.parquet.verify_values import ValueCheck
from sidecar.planning.verdicts import is_listed
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import THETA
from sidecar.source import open_source

if TYPE_CHECKING:
    from sidecar.bundle.sidecar_file import Segment

LARGEST_LG_K = 20
"""Sketches of any size are read whole: a smaller one would be estimated anew."""


def verify_table(
    table: Table,
    snapshot_id: int | None = None,
    *,
    ref: str | None = None,
    data: bool = False,
    sample: float | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> dict[str, Any]:
    """Check the sidecar that answers for a snapshot (that of a branch or tag ``ref``, or the current one).

    With ``data``, every value of the indexed columns is looked up in the filters, and page indexes are held
    against the pages, of all Parquet files or of a ``sample`` of them (a share, chosen at random); the answer has
    ``looked_up``: ``units`` (files), ``units_total`` and ``values``.

    ``encryption_keys`` open encrypted bundles and data files; a bundle without its key cannot be checked, which is a
    problem.

    Answers ``checked`` (sidecar files and manifests that were compared) and ``problems``: ``file``, ``unit``,
    ``column`` and ``problem`` of each. All of the sidecar is read, and the manifests that it lists. Damage is a
    problem, not an exception; :class:`sidecar.errors.UsageError` is raised for an unknown snapshot, and
    :class:`sidecar.errors.StorageError` or :class:`sidecar.errors.DamagedFileError` where the table's own
    metadata cannot be read.
    """
    snapshot = snapshot_of(table, snapshot_id_of(table, snapshot_id, ref))
    warnings: list[str] = []
    found = find_sidecar(table, snapshot.snapshot_id, warnings=warnings)
    problems = [_problem(None, warning) for warning in warnings]
    if found is None:
        if not problems:
            problems.append(_problem(None, "neither the snapshot nor an ancestor of it has a sidecar"))
        return {"checked": 0, "problems": problems}
    entry, checked = found.statistics, 1
    found.sidecar.use_keys(encryption_keys)
    check = ValueCheck(1.0 if sample is None else sample) if data or sample is not None else None
    files: list[DataFileIdentity] = []
    try:
        problems += _of_file(table, entry, encryption_keys)
        for line in read_manifests(table.io, snapshot.manifest_list):
            if line.content == ManifestContent.DATA:
                listing = [
                    s for s in found.sidecar.segments if any(is_listed(line, m) for m in s.listed_manifests)
                ]
                checked += bool(listing)
                for segment in listing:
                    problems += _of_manifest(table, line, segment, entry.statistics_path)
                if check is not None:
                    files += [
                        identity_of(raw.entry)
                        for raw in _live(table, line)
                        if raw.entry.data_file.file_format == FileFormat.PARQUET
                    ]
        if check is None:
            return {"checked": checked, "problems": problems}
        problems += map(dict, sidecar_value_problems(found.sidecar, files, table.io, check, encryption_keys))
    finally:
        found.sidecar.close()
    return {"checked": checked, "problems": problems, "looked_up": check.to_dict()}


def _of_file(
    table: Table, entry: StatisticsFile, encryption_keys: EncryptionKeys | None
) -> list[dict[str, Any]]:
    """The sidecar file by itself, and against what is registered of it."""
    path = entry.statistics_path
    problems: list[dict[str, Any]] = verify_file(path, table.io, encryption_keys=encryption_keys)["problems"]
    source = open_source(path, table.io)
    try:
        puffin = PuffinReader(source)
        return [*problems, *_registered(entry, puffin), *_sketches(puffin, path)]
    except SidecarError as error:
        return [*problems, _problem(path, str(error))]
    finally:
        source.close()


def _sketches(puffin: PuffinReader, path: str) -> list[dict[str, Any]]:
    """Theta sketches have no checksum: they must be sketches, and of the size that the footer says."""
    problems = []
    for blob in puffin.metadata.blobs:
        if blob.type == THETA:
            named = f"the theta sketch of fields {list(blob.fields)}"
            try:
                ndv = ThetaSketch.from_bytes(puffin.read_blob(blob), LARGEST_LG_K, path).ndv
            except SidecarError as error:
                problems.append(_problem(path, f"{named} cannot be read: {error}"))
                continue
            if blob.properties.get("ndv", str(ndv)) != str(ndv):
                problems.append(
                    _problem(path, f"{named} estimates {ndv}, its ndv is {blob.properties['ndv']}")
                )
    return problems


def _registered(entry: StatisticsFile, puffin: PuffinReader) -> list[dict[str, Any]]:
    """Registered sizes and blobs against the file and its footer."""
    path, size = entry.statistics_path, puffin.source.size
    problems = []
    if size != entry.file_size_in_bytes:
        problems.append(_problem(path, f"registered with {entry.file_size_in_bytes} bytes, but has {size}"))
    footer_size = size - puffin.footer_offset
    if footer_size != entry.file_footer_size_in_bytes:
        found = (
            f"registered with a footer of {entry.file_footer_size_in_bytes} bytes, but it has {footer_size}"
        )
        problems.append(_problem(path, found))
    stored = {
        (blob.type, blob.fields, blob.snapshot_id, blob.sequence_number): dict(blob.properties)
        for blob in puffin.metadata.blobs
    }
    for blob in entry.blob_metadata:
        key = (blob.type, tuple(blob.fields), blob.snapshot_id, blob.sequence_number)
        named = f"the {blob.type} blob of fields {list(blob.fields)}"
        if blob.type != THETA:
            problems.append(_problem(path, f"{named} is registered; other readers may fail on it"))
        if key not in stored:
            problems.append(_problem(path, f"{named} is registered, but the file has none"))
        elif not (blob.properties or {}).items() <= stored[key].items():
            problems.append(_problem(path, f"{named} is registered with other properties than it has"))
    return problems


def _of_manifest(table: Table, line: ManifestFile, segment: Segment, path: str) -> list[dict[str, Any]]:
    """The entries of a listed manifest against those that the segment has of it."""
    listed = next(manifest for manifest in segment.listed_manifests if is_listed(line, manifest))
    live = _live(table, line)
    if len(live) != listed.live_files:
        return [
            _problem(path, f"lists {listed.live_files} files of {line.manifest_path}, which has {len(live)}")
        ]
    problems = []
    stored = segment.files(range(listed.first_file, listed.first_file + listed.live_files))
    for ordinal, (raw, entry) in enumerate(zip(live, stored, strict=True), listed.first_file):
        file, identity = raw.entry.data_file, identity_of(raw.entry)
        if entry is None:
            problems.append(_problem(path, f"the entry of {file.file_path} cannot be read"))
        elif entry.entry != raw.raw or entry.identity != identity:
            problems.append(_problem(path, f"the entry of {file.file_path} is not the one of its manifest"))
        elif segment.file_ordinal(identity) != ordinal:
            problems.append(
                _problem(path, f"the fingerprint of {file.file_path} is not the one of its entry")
            )
        elif (rows := sum(unit.rows for unit in entry.units)) != file.record_count and entry.units:
            problems.append(_problem(path, f"the row groups of {file.file_path} have {rows} rows in all"))
    return problems


def _live(table: Table, line: ManifestFile) -> list[RawEntry]:
    entries = read_manifest(table.io, line).entries
    return [raw for raw in entries if raw.entry.status != ManifestEntryStatus.DELETED]


def _problem(file: str | None, problem: str) -> dict[str, Any]:
    return {"file": file, "unit": None, "column": None, "problem": problem}
