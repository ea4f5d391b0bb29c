"""Which delete files apply to a data file, by the rules of Iceberg's scan planning."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record

from sidecar.iceberg.deletes.delete_files import (
    DeleteFile,
    EqualityDeletes,
    FileKey,
    SnapshotDeletes,
    comparable,
    divides_files,
    partition_of,
)
from sidecar.iceberg.manifests import LATEST
from tests.iceberg.cases import file_in_manifest

PATH_FIELD = 2147483546
NAN = float("nan")
EVERYTHING = PartitionSpec(spec_id=0)
BY_ONE = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "one"), spec_id=1)
BY_TWO = PartitionSpec(*BY_ONE.fields, PartitionField(2, 1001, IdentityTransform(), "two"), spec_id=2)
DROPPED = PartitionSpec(
    PartitionField(1, 1000, VoidTransform(), "one"), PartitionField(2, 1001, VoidTransform(), "two"), spec_id=3
)
"""In version 1 a spec keeps fields that were dropped."""
HALF_DROPPED = PartitionSpec(DROPPED.fields[0], BY_TWO.fields[1], spec_id=4)


def delete(
    name: str,
    sequence: int,
    spec: PartitionSpec | None = EVERYTHING,
    partition: tuple[Any, ...] = (),
    *,
    content: DataFileContent = DataFileContent.POSITION_DELETES,
    vector: bool = False,
    target: str | None = None,
    bounds: tuple[str, str] | None = None,
) -> DeleteFile:
    lower, upper = ({PATH_FIELD: one.encode()} for one in bounds) if bounds else ({}, {})
    file = file_in_manifest(
        name,
        1,
        100,
        _table_format_version=LATEST,
        content=content,
        file_format=FileFormat.PUFFIN if vector else FileFormat.PARQUET,
        partition=Record(*partition),
        lower_bounds=lower,
        upper_bounds=upper,
        referenced_data_file=target,
    )
    file.spec_id = 9 if spec is None else spec.spec_id
    return DeleteFile.of(ManifestEntry.from_args(sequence_number=sequence, data_file=file), spec)


DELETES = [
    delete("replaced vector", 4, vector=True, target="v.parquet"),
    delete("vector", 5, vector=True, target="v.parquet"),
    delete("first vector", 3, vector=True, target="v.parquet"),
    delete("by reference", 5, target="a.parquet"),
    delete("by equal bounds", 5, bounds=("a.parquet", "a.parquet")),
    delete("by bounds", 5, bounds=("a.parquet", "m")),
    delete("by cut bounds", 5, bounds=("y", "z.par")),
    delete("by bounds that are cut alike", 5, bounds=("z.pa", "z.pa")),
    delete("by equal bounds of a path without a suffix", 5, BY_ONE, (9,), bounds=("plain", "plain")),
    delete("older", 3),
    delete("of partition 1", 5, BY_ONE, (1,)),
    delete("of partition NaN", 5, BY_ONE, (NAN,)),
]


@pytest.mark.parametrize(
    ("path", "sequence", "spec_id", "partition", "wanted"),
    [
        ("a.parquet", 4, 0, (), {"by reference", "by equal bounds", "by bounds"}),
        ("a.parquet", 5, 0, (), {"by reference", "by equal bounds", "by bounds"}),
        ("a.parquet", 6, 0, (), set()),
        ("b.parquet", 3, 0, (), {"by bounds", "older"}),
        ("z.parquet", 4, 0, (), {"by cut bounds", "by bounds that are cut alike"}),
        ("v.parquet", 3, 0, (), {"vector"}),  # nothing else deletes by position where there is a vector
        ("v.parquet", 6, 0, (), set()),
        ("plain", 4, 1, (8,), {"by equal bounds of a path without a suffix"}),
        ("plain", 4, 1, (9,), {"by equal bounds of a path without a suffix"}),
        ("plain-2", 4, 1, (9,), {"by equal bounds of a path without a suffix"}),  # they may be cut
        ("p.parquet", 5, 1, (1,), {"of partition 1"}),
        ("p.parquet", 4, 1, (2,), set()),
        ("p.parquet", 4, 2, (1,), set()),  # of another spec
        ("p.parquet", 4, 1, (NAN,), {"of partition NaN"}),
    ],
)
def test_position_deletes_of_a_file(path: str, sequence: int, spec_id: int, partition: Any, wanted: set[str]) -> None:
    found = SnapshotDeletes(DELETES).applying_to(path, key_of(sequence, spec_id, *partition))
    assert {one.file.file_path for one in found} == wanted
    assert len(found) == len(wanted)


def key_of(sequence: int, spec_id: int, *partition: Any) -> FileKey:
    return FileKey(sequence, spec_id, partition_of(DataFile.from_args(partition=Record(*partition))))


def fate_of(delete: DeleteFile, sequence: int, spec_id: int, *partition: Any) -> str:
    """What an equality delete does to a data file."""
    seen = EqualityDeletes()
    seen.deletes = SnapshotDeletes([delete])
    seen.add("a", key_of(sequence, spec_id, *partition))
    found = seen.applying_to("a")
    assert seen.may_apply_to("a") == bool(found)
    return "spares it" if not found else "in doubt" if found[0].is_doubtful else "applies"


@pytest.mark.parametrize(
    ("spec", "partition", "fates"),
    [
        (EVERYTHING, (), ["applies"] * 6),
        (DROPPED, (None, None), ["applies"] * 6),
        (BY_ONE, (7,), ["applies", "spares it", "spares it", "spares it", "spares it", "spares it"]),
        (BY_ONE, (None,), ["spares it", "applies", "spares it", "spares it", "spares it", "spares it"]),
        (BY_TWO, (None, None), ["spares it", "spares it", "spares it", "applies", "spares it", "spares it"]),
        (BY_TWO, (7, None), ["spares it", "spares it", "applies", "spares it", "spares it", "spares it"]),
        (HALF_DROPPED, (None, 7), ["spares it", "spares it", "spares it", "spares it", "applies", "spares it"]),
        # Written with a spec of no fields, whose id is that of a spec with some: nobody knows what was meant.
        (BY_ONE, (), ["in doubt"] * 6),
        (None, (7,), ["in doubt"] * 6),
    ],
    ids=str,
)
def test_equality_deletes_apply_to_a_partition_of_a_spec_or_everywhere(
    spec: PartitionSpec | None, partition: tuple[Any, ...], fates: list[str]
) -> None:
    """The spec says which, never the values: a streaming writer deletes in the NULL partition."""
    equality = delete("d", 5, spec, partition, content=DataFileContent.EQUALITY_DELETES)
    files = [(1, 7), (1, None), (2, 7, None), (2, None, None), (4, None, 7), (0,)]
    assert [fate_of(equality, 4, spec_id, *values) for spec_id, *values in files] == fates
    assert {fate_of(equality, 5, spec_id, *values) for spec_id, *values in files} == {"spares it"}, "older files only"


def test_specs_that_divide_nothing() -> None:
    assert [divides_files(spec) for spec in (EVERYTHING, BY_ONE, BY_TWO, DROPPED, HALF_DROPPED)] == [
        False,
        True,
        True,
        False,
        True,
    ]


def test_a_path_of_two_entries_has_the_deletes_of_both() -> None:
    seen, equality = EqualityDeletes(), delete("d", 3, content=DataFileContent.EQUALITY_DELETES)
    seen.deletes = SnapshotDeletes([equality])
    seen.add("a", key_of(5, 0))
    assert (seen.may_apply_to("a"), seen.applying_to("a")) == (False, [])
    seen.add("a", key_of(1, 0))
    seen.add("a", key_of(2, 0))
    assert seen.may_apply_to("a")
    assert seen.applying_to("a") == [equality]
    assert seen.sequence_numbers == {"a": 1}


def test_a_partition_of_nan_equals_itself() -> None:
    assert comparable(float("nan")) == comparable(float("nan"))
    assert comparable(0.5) != comparable(float("nan"))
