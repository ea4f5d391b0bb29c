"""Reads which rows of data files position deletes and deletion vectors delete.

A deletion vector is read at the offset in its manifest entry, and is that of the data file which the entry names. Its
Puffin blob names a data file, too, but where a table was moved by its metadata alone, that is the file's old path. A
vector is (https://iceberg.apache.org/puffin-spec/#deletion-vector-v1-blob-type): the length of what is between it and
the checksum (4 bytes, big-endian), a magic number, the number of bitmaps (8 bytes, little-endian), each with its key
(4 bytes, the upper half of the positions) and as a Roaring bitmap, and the CRC-32 of all but the length (big-endian).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import FileScanTask, deletion_vector
from pyiceberg.utils.concurrent import ExecutorFactory

from sidecar.access import Access
from sidecar.dependencies.pyiceberg import position_deletes
from sidecar.errors import DamagedFileError, foreign_reason, located
from sidecar.iceberg.manifests import latest_fields

DeleteKey = tuple[str, int | None]
"""The path of a delete file, and the offset of a deletion vector in it."""
Deletes = Mapping[DeleteKey, Mapping[str, Any]]
"""By path of a data file, its deleted positions: a chunked array of int64."""
_MAGIC = b"\xd1\xd3\x39\x64"
_FEW = 4
"""Up to this many vectors of a Puffin file are read one by one; for more, the whole file is."""


def read_deletes(access: Access, files: Sequence[DataFile], for_pyiceberg: FileIO) -> Deletes:
    """Read each delete file once; pyiceberg reads position deletes, with an ``io`` of its own.

    Raises :class:`DamagedFileError` for a vector, and the errors of pyiceberg.
    """
    by_key = {_key(file): file for file in files}
    vectors: dict[str, list[DataFile]] = {}
    for (path, offset), file in by_key.items():
        if offset is not None:
            vectors.setdefault(path, []).append(file)
    others = [(key, file) for key, file in by_key.items() if key[1] is None]
    pool = ExecutorFactory.get_or_create()
    found: dict[DeleteKey, Mapping[str, Any]] = {}
    for some in pool.map(partial(_read_vectors, access), vectors.values()):
        found |= some
    read = pool.map(partial(position_deletes, for_pyiceberg), (file for _, file in others))
    return found | {key: positions for (key, _), positions in zip(others, read, strict=True)}


def deletes_of(task: FileScanTask, deletes: Deletes) -> list[Any]:
    """Return the deleted positions of a task's file, from the task's own delete files: chunked arrays of int64.

    A data file can leave the table and be added again. Older delete files that name its path do not apply to it then.
    pyiceberg combines the positions of all delete files of a scan by path, so it loses rows when such a delete file
    belongs to another task of the scan.
    """
    path = task.file.file_path
    own = (deletes[_key(file)] for file in task.delete_files)
    return [positions[path] for positions in own if path in positions]


def _key(file: DataFile) -> DeleteKey:
    known = latest_fields(file)
    is_vector = file.file_format == FileFormat.PUFFIN and None not in (
        known.referenced_data_file,
        known.content_offset,
        known.content_size,
    )
    return file.file_path, known.content_offset if is_vector else None


def _read_vectors(access: Access, files: Sequence[DataFile]) -> Deletes:
    """Read deletion vectors of one Puffin file."""
    path, found = files[0].file_path, dict[DeleteKey, Mapping[str, Any]]()
    with closing(access.open(path, files[0].file_size_in_bytes)) as source:
        whole = source.read(0, source.size) if len(files) > _FEW else None
        for file in files:
            known = latest_fields(file)
            offset, size = known.content_offset or 0, known.content_size or 0
            data = source.read(offset, size) if whole is None else whole[offset : offset + size]
            with located(path, offset=offset):
                positions = vector_positions(bytes(data))
            found[path, known.content_offset] = {str(known.referenced_data_file): pa.chunked_array([positions])}
    return found


def vector_positions(data: bytes) -> npt.NDArray[np.int64]:
    """Return the positions (rising) in a deletion vector. Raises :class:`DamagedFileError`."""
    end = 4 + int.from_bytes(data[:4], "big")
    if len(data) != end + 4 or data[4:8] != _MAGIC:
        raise DamagedFileError(
            "a deletion vector is not what its manifest says",
            expected=f"a length of {len(data) - 8}, {_MAGIC.hex()}",
            found=f"a length of {end - 4}, {data[4:8].hex()}",
        )
    checksum = int.from_bytes(data[end:], "big")
    if zlib.crc32(data[4:end]) != checksum:
        raise DamagedFileError(
            "the checksum of a deletion vector is wrong",
            expected=f"{checksum:08x}",
            found=f"{zlib.crc32(data[4:end]):08x}",
        )
    try:
        return _positions_in(memoryview(data)[8:end])
    except Exception as error:
        raise DamagedFileError(f"a deletion vector cannot be read: {foreign_reason(error)}") from error


def _positions_in(bitmaps: memoryview) -> npt.NDArray[np.int64]:
    roaring: Any = deletion_vector
    arrays, at, last = [np.empty(0, np.int64)], 8, -1
    for _ in range(int.from_bytes(bitmaps[:8], "little")):
        key = int.from_bytes(bitmaps[at : at + 4], "little")
        if key <= last:
            raise ValueError("keys do not rise")
        bitmap = roaring.BitMap.deserialize(bytes(bitmaps[at + 4 :]))
        arrays.append(np.array(bitmap.to_array(), np.int64) + (key << 32))
        at, last = at + 4 + len(bitmap.serialize()), key
    if at != len(bitmaps):
        raise ValueError(f"bytes from {at} to {len(bitmaps)} are no bitmap")
    return np.concatenate(arrays)
