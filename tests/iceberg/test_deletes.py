"""Which equality deletes may apply to a data file."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.typedef import Record

from sidecar.iceberg.deletes import EqualityDeletes


def entry(name: str, sequence: int, spec_id: int, *partition: Any) -> ManifestEntry:
    is_delete = name.startswith("delete")
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES if is_delete else DataFileContent.DATA,
        file_path=name,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=1,
        file_size_in_bytes=100,
    )
    file.spec_id = spec_id
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=1, sequence_number=sequence, data_file=file
    )


@pytest.mark.parametrize(
    ("spec_id", "partition", "applies"),
    [
        (0, (), True),
        (1, (7,), True),
        (1, (8,), False),
        (2, (7,), False),
        # A spec of version 1 whose fields were all removed has void fields: it divides nothing.
        (2, (None, None), True),
    ],
)
def test_deletes_of_specs_that_divide_nothing_apply_everywhere(
    spec_id: int, partition: tuple[Any, ...], applies: bool
) -> None:
    deletes = EqualityDeletes()
    data = entry("data.parquet", 1, 1, 7)
    deletes.see([entry("delete.parquet", 2, spec_id, *partition), data])
    assert deletes.apply_to(data.data_file) == applies
