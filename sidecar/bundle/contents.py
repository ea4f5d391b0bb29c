"""Describes a Puffin file by its columns (which indexes, how large, how full) and by the data files that it lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.bundle.columns import NamedColumns
from sidecar.bundle.field_blob import OpenedBlob
from sidecar.bundle.fill import FilterFillInfo, read_fill
from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.kinds.blob_forms import BLOB_FORMS
from sidecar.bundle.listed_files import check_listable, listed_batches
from sidecar.bundle.segment import Segment
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.sketches.count_marks import CountMarks, count_of
from sidecar.errors import SidecarError, UnsupportedFeatureError
from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.types import THETA
from sidecar.results.base import Result


@dataclass(frozen=True, repr=False, slots=True)
class ListedFileInfo(Result):
    """A data file that a sidecar lists."""

    path: str
    """The path of the file."""
    size: int
    """The size of the file in bytes."""
    rows: int
    """The number of its rows."""
    row_groups: int
    """The number of its row groups that were indexed."""
    segment: str
    """The id of the segment that lists it."""


@dataclass(frozen=True, repr=False)
class StoredIndexInfo(Result):
    """The indexes of one kind that a sidecar has of one field."""

    units: int | None
    """The number of row groups with an index; ``None`` for sketches, which are of a whole table or groups of files."""
    bytes: int
    """The stored bytes of the indexes."""
    encrypted: bool
    """Whether some are encrypted."""


@dataclass(frozen=True, repr=False)
class StoredFiltersInfo(StoredIndexInfo):
    """The filters of one kind that a sidecar has of one field."""

    locked: str | None
    """The reason why the filters cannot be read, a missing key; ``None`` if they can be read."""
    encodings: list[str]
    """The encodings of values into the bytes that are hashed."""
    declared_fpp: list[float]
    """The false-positive rates that the builds asked for."""
    lookup_bytes: int
    """The most bytes that the lookup of one hash reads."""
    fill: FilterFillInfo | None
    """The fill of the filters; ``None`` if it was not asked for."""


@dataclass(frozen=True, repr=False, slots=True)
class SidecarColumnInfo(Result):
    """The indexes and the sketch of one field in a Puffin file."""

    omitted_if_none = ("upper_bound", "lower_bound")

    id: int
    """The field id."""
    name: str | None
    """The newest name that the file has for the field; ``None`` if it has none."""
    type: str | None
    """The Iceberg type that the file has for the field, if any."""
    distinct_values: int | None
    """The number of distinct values that the field's sketch states."""
    kinds: dict[str, StoredIndexInfo]
    """The indexes by kind, such as ``bloom``. Kinds of filters have a :class:`StoredFiltersInfo`."""
    upper_bound: list[str] | None = None
    """Why the number is only an upper bound: ``removed-files``, ``row-deletes``; ``None`` if it is not known to be
    one."""
    lower_bound: list[str] | None = None
    """Why the number is only a lower bound: ``files-not-counted``; ``None`` if it is not known to be one. With both,
    it is neither."""


def describe_columns(sidecar: SidecarFile, fill: bool = False) -> list[SidecarColumnInfo]:
    """Describe each field with indexes or a sketch, by field id. With ``fill`` read all filters."""
    names = NamedColumns.of(sidecar.segments)
    blobs = sidecar.puffin.metadata.blobs
    sketches = {blob.fields[0]: blob for blob in blobs if blob.type == THETA and blob.fields}
    marks = {field_id: CountMarks.of(blob.properties) for field_id, blob in sketches.items()}
    return [
        SidecarColumnInfo(
            id=field_id,
            name=names.name(field_id),
            type=names.type(field_id),
            distinct_values=count_of(sketches[field_id].properties) if field_id in sketches else None,
            kinds=_kinds(sidecar.segments, field_id, sketches.get(field_id), fill),
            upper_bound=marks[field_id].upper_bound if field_id in marks else None,
            lower_bound=marks[field_id].lower_bound if field_id in marks else None,
        )
        for field_id in sorted({*names.paths, *names.stated, *sketches})
    ]


def describe_files(sidecar: SidecarFile) -> list[ListedFileInfo]:
    """Return the listed files of all segments. A segment with too many files is left out, and a warning says so."""
    files: list[ListedFileInfo] = []
    for segment in sidecar.segments:
        try:
            check_listable(segment)
        except UnsupportedFeatureError as error:
            sidecar.damage.add(error)
            continue
        for _, batch in listed_batches(segment, sidecar.damage):
            files += [ListedFileInfo(*file.identity[:3], len(file.units), segment.id) for file in batch or ()]
    return files


def _kinds(
    segments: Sequence[Segment], field_id: int, sketch: BlobMetadata | None, fill: bool
) -> dict[str, StoredIndexInfo]:
    kinds: dict[str, StoredIndexInfo] = {}
    for blob_type, form in BLOB_FORMS.items():
        found = [blob for segment in segments if (blob := segment.opened[blob_type].get(field_id)) is not None]
        if found:
            kinds[form.shown_as] = _describe(found, fill)
    if sketch is not None:
        kinds["theta"] = StoredIndexInfo(None, sketch.length, encrypted=False)
    return kinds


def _describe(found: Sequence[OpenedBlob], fill: bool) -> StoredIndexInfo:
    counts = [blob.members for blob in found]
    common = StoredIndexInfo(
        units=None if None in counts else sum(filter(None, counts)),
        bytes=sum(blob.stored_bytes for blob in found),
        encrypted=any(blob.toc.lock is not None for blob in found),
    )
    filters = [blob for blob in found if isinstance(blob, FilterBundle)]
    return _describe_filters(common, filters, fill) if filters else common


def _describe_filters(common: StoredIndexInfo, found: Sequence[FilterBundle], fill: bool) -> StoredFiltersInfo:
    groups = [group for bundle in found for group in bundle.toc.groups]
    rates = [bundle.toc.fpp for bundle in found if bundle.toc.fpp is not None]
    return StoredFiltersInfo(
        **vars(common),
        locked=_why_locked(found),
        encodings=list(dict.fromkeys(group.encoding for group in groups)),
        declared_fpp=list(dict.fromkeys(rates)),
        lookup_bytes=sum(group.lookup_bytes for group in groups),
        fill=read_fill(found) if fill else None,
    )


def _why_locked(bundles: Sequence[FilterBundle]) -> str | None:
    for bundle in bundles:
        if bundle.toc.lock is not None:
            try:
                bundle.check_key()
            except SidecarError as error:
                return error.what
    return None
