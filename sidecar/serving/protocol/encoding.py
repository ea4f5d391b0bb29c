"""Writes data files, delete files and scan tasks as the protocol's JSON.

What clients expect differs from the OpenAPI file in places, and decides:

- Bounds are the hexadecimal digits of the single-value bytes (Java). pyiceberg drops them, so it gets none, and no
  counts either.
- Partition values are a list in the order of the spec (Java). pyiceberg 0.12 refuses NULL in it, and takes values
  without converting them. So it gets what its own plans have, a date as the number of its day, if JSON can say all of
  them, and else an empty list.
- Each task of Java's and pyiceberg's plans has a residual: without one Java fails on partitioned tables, and pyiceberg
  takes all rows of the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import to_json
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.types import IcebergType, PrimitiveType, UnknownType

from sidecar.errors import UnsupportedFeatureError
from sidecar.iceberg.manifests import LatestFields

_CONTENTS = {
    DataFileContent.DATA: "data",
    DataFileContent.POSITION_DELETES: "position-deletes",
    DataFileContent.EQUALITY_DELETES: "equality-deletes",
}
NO_LATEST_FIELDS = LatestFields(None, None, None, None)


def encode_file(
    file: DataFile,
    spec_id: int,
    partition_types: Sequence[IcebergType],
    latest: LatestFields = NO_LATEST_FIELDS,
    *,
    for_pyiceberg: bool,
) -> bytes:
    """Return a data file or delete file as JSON.

    ``partition_types`` are those of the spec's partition values. ``latest`` has the fields of format version 3.
    Raises :class:`UnsupportedFeatureError` for a partition value that the protocol cannot say.
    """
    document: dict[str, Any] = {
        "spec-id": spec_id,
        "content": _CONTENTS[file.content],
        "file-path": file.file_path,
        "file-format": file.file_format.lower(),
        "partition": _partition_for_pyiceberg(file) if for_pyiceberg else _partition(file, partition_types),
        "file-size-in-bytes": file.file_size_in_bytes,
        "record-count": file.record_count,
    }
    if file.key_metadata is not None:
        document["key-metadata"] = file.key_metadata.hex().upper()
    if file.split_offsets:
        document["split-offsets"] = list(file.split_offsets)
    if file.sort_order_id is not None:
        document["sort-order-id"] = file.sort_order_id
    if file.content == DataFileContent.DATA:
        if latest.first_row_id is not None:
            document["first-row-id"] = latest.first_row_id
        if not for_pyiceberg:
            document |= _statistics(file)
    elif file.content == DataFileContent.EQUALITY_DELETES:
        document["equality-ids"] = list(file.equality_ids or [])
    else:
        document |= _position_delete(latest)
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def _statistics(file: DataFile) -> dict[str, Any]:
    counts = {
        "column-sizes": file.column_sizes,
        "value-counts": file.value_counts,
        "null-value-counts": file.null_value_counts,
        "nan-value-counts": file.nan_value_counts,
    }
    maps = {name: _map(count, count.values()) for name, count in counts.items() if count}
    for name, bounds in (("lower-bounds", file.lower_bounds), ("upper-bounds", file.upper_bounds)):
        if bounds:
            maps[name] = _map(bounds, (value.hex().upper() for value in bounds.values()))
    return maps


def _map(keys: Mapping[int, Any], values: Iterable[Any]) -> dict[str, list[Any]]:
    return {"keys": list(keys), "values": list(values)}


def _position_delete(latest: LatestFields) -> dict[str, Any]:
    known = {
        "referenced-data-file": latest.referenced_data_file,
        "content-offset": latest.content_offset,
        "content-size-in-bytes": latest.content_size,
    }
    return {name: value for name, value in known.items() if value is not None}


def is_known_to_pyiceberg(partition: Sequence[object]) -> bool:
    """Return whether JSON gives pyiceberg the values of a partition without a loss or a change."""
    return all(isinstance(value, bool | int | str) for value in partition)


def _partition_for_pyiceberg(file: DataFile) -> list[Any]:
    values = [file.partition[place] for place in range(len(file.partition))]
    return values if is_known_to_pyiceberg(values) else []


def _partition(file: DataFile, kinds: Sequence[IcebergType]) -> list[Any]:
    values = [file.partition[place] for place in range(min(len(file.partition), len(kinds)))]
    values += [None] * (len(kinds) - len(values))  # a field that the manifest lacks
    return [_value(value, kind, file.file_path) for value, kind in zip(values, kinds, strict=True)]


def _value(value: Any, kind: IcebergType, path: str) -> Any:
    if value is None or not isinstance(kind, PrimitiveType) or isinstance(kind, UnknownType):
        return None  # the type of a partition value is unknown once its column was dropped
    if isinstance(value, float) and not math.isfinite(value):
        raise UnsupportedFeatureError(
            "the protocol has no partition value for NaN and infinity",
            file=path,
            hint="Set scan-planning-mode to client for this table.",
        )
    return to_json(kind, value)


PLAN_ID = "sidecar-complete"
"""The id of every plan. Clients of Go refuse a plan without one. Clients of Java report when they have read such a
plan. The server keeps nothing for it, since plans are complete at once."""


@dataclass(frozen=True)
class EncodedTask:
    """A scan task in pieces."""

    file: bytes
    deletes: Sequence[bytes] = ()
    """The delete files that apply to the file, each as JSON."""
    is_whole: bool = False
    """Whether the file's partition alone decides that all of its rows match: the residual is ``true``."""


def encode_answer(
    tasks: Sequence[EncodedTask], residual: bytes | None, plan_tasks: Sequence[str] = (), *, is_plan: bool
) -> list[bytes]:
    """Return the body of an answer in pieces.

    ``residual`` is the JSON of what is left of the filter; ``None``: tasks do not say it. ``plan_tasks`` stand for
    further pages. ``is_plan`` says that this is the answer to a plan request, not a page.
    """
    ordinals: dict[bytes, int] = {}
    references = [[ordinals.setdefault(delete, len(ordinals)) for delete in task.deletes] for task in tasks]
    pieces = [b'{"status":"completed","plan-id":"%b",' % PLAN_ID.encode() if is_plan else b"{"]
    pieces.append(b'"plan-tasks":' + json.dumps(list(plan_tasks)).encode() + b"," if plan_tasks else b"")
    if ordinals:
        pieces.append(b'"delete-files":[' + b",".join(ordinals) + b"],")
    pieces.append(b'"file-scan-tasks":[')
    ends = {
        True: b',"residual-filter":true}',
        False: b"}" if residual is None else b',"residual-filter":%b}' % residual,
    }
    pieces.append(
        b",".join(
            b'{"data-file":' + task.file + _references(places) + ends[task.is_whole]
            for task, places in zip(tasks, references, strict=True)
        )
    )
    pieces.append(b"]}")
    return pieces


def _references(places: Sequence[int]) -> bytes:
    return b',"delete-file-references":' + json.dumps(places).encode() if places else b""
