"""Records of stage 1 put in order: a file counts as indexed only if all of its row groups were seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.bundle.model import FieldBounds, UnitEntry
from sidecar.indexing.assemble import Encrypted, collect, encrypted_of
from sidecar.indexing.columns import Options
from sidecar.indexing.stage_one.fault import DAMAGE, STORAGE
from sidecar.indexing.stage_one.tasks import StageResult


def file(ordinal: int, rows: int = 100) -> Any:
    return SimpleNamespace(ordinal=ordinal, not_indexable=None, record_count=rows)


def unit(of: int, row_group: int) -> StageResult:
    return StageResult("unit", of, row_group, entry=UnitEntry(row_group, 100 * row_group, 100))


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        (0, "not all row groups of the file were seen"),
        (1, "not all row groups of the file were seen"),
        (2, "the row groups of the file have another number of rows than the table says"),
    ],
)
def test_a_file_of_which_a_row_group_is_missing_has_no_units(missing: int, reason: str) -> None:
    records = [unit(0, number) for number in range(3)]
    records += [unit(1, number) for number in range(3) if number != missing]
    found = collect([file(0, 300), file(1, 300)], records)
    assert [(one.file, one.entry.row_group) for one in found.units] == [(0, 0), (0, 1), (0, 2)]
    assert found.failed == {1: reason}
    assert found.unread == set()


def test_every_file_that_storage_did_not_give_counts_as_unread() -> None:
    """Other pieces of it may have been read."""
    records = [unit(0, 0), unit(1, 0), unit(2, 0), unit(3, 0)]
    faults = {0: STORAGE, 1: DAMAGE, 3: STORAGE}
    records += [StageResult("file", of, reason=f"reason {of}", fault=fault) for of, fault in faults.items()]
    found = collect([file(number) for number in range(4)], records)
    assert [one.file for one in found.units] == [2]
    assert found.failed == {of: f"reason {of}" for of in faults}
    assert found.unread == {0, 3}


def listed(ordinal: int, bounds: FieldBounds, key_metadata: bytes | None = None) -> Any:
    entry = SimpleNamespace(key_metadata=key_metadata)
    return SimpleNamespace(ordinal=ordinal, bounds={7: bounds}, data_file=entry)


@pytest.mark.parametrize("lower", [b"low", None])
@pytest.mark.parametrize("upper", [b"high", None])
def test_one_bound_of_an_encrypted_column_exposes_it(lower: bytes | None, upper: bytes | None) -> None:
    file = listed(0, FieldBounds(lower, upper, 1, 0, None))
    is_bounded = lower is not None or upper is not None
    assert Encrypted(fields=frozenset([7])).exposes(file, ()) is is_bounded
    assert Encrypted(files=frozenset([0])).exposes(file, ()) is is_bounded
    assert not Encrypted(fields=frozenset([7])).exposes(file, {7})
    assert not Encrypted(fields=frozenset([8]), files=frozenset([1])).exposes(file, ())


@pytest.mark.parametrize("plaintext", [(), {7}, {8}])
def test_the_entry_of_a_file_with_a_key_of_its_own_exposes_it_whatever_is_in_clear(plaintext: Any) -> None:
    """A column that may stand in plaintext does not make the key metadata of its file public."""
    file = listed(0, FieldBounds(b"low", b"high", 1, 0, None), key_metadata=b"wrapped key")
    assert Encrypted().exposes(file, plaintext)
    assert Encrypted(fields=frozenset([7])).exposes(file, plaintext)


def test_every_file_and_field_that_is_told_counts_as_encrypted() -> None:
    told = [
        StageResult("encrypted", 0, field_id=3),
        StageResult("encrypted", 1),
        StageResult("encrypted", 2),
        unit(5, 0),
    ]
    options = Options(frozenset({"bloom"}), 0.01, None, "good", encrypted=frozenset([9]))
    found = encrypted_of(told, options)
    assert (found.fields, found.files) == ({3, 9}, {1, 2})
