"""Records of stage 1 put in order: a file counts as indexed only if all of its row groups were seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.indexing.assemble import collect
from sidecar.indexing.faults import DAMAGE, STORAGE
from sidecar.indexing.tasks import Record


def file(ordinal: int) -> Any:
    return SimpleNamespace(ordinal=ordinal, not_indexable=None)


def unit(of: int, row_group: int) -> Record:
    return Record("unit", of, row_group, first_row=100 * row_group, rows=100)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_file_of_which_a_row_group_is_missing_has_no_units(missing: int) -> None:
    records = [unit(0, number) for number in range(3)]
    records += [unit(1, number) for number in range(3) if number != missing]
    found = collect([file(0), file(1)], records, 12)
    assert [(one.file, one.entry.row_group) for one in found.units] == [(0, 0), (0, 1), (0, 2)]
    assert found.failed == {1: "not all row groups of the file were seen"}
    assert found.unread == set()


def test_every_file_that_storage_did_not_give_counts_as_unread() -> None:
    """Other pieces of it may have been read."""
    records = [unit(0, 0), unit(1, 0), unit(2, 0), unit(3, 0)]
    faults = {0: STORAGE, 1: DAMAGE, 3: STORAGE}
    records += [Record("file", of, reason=f"reason {of}", fault=fault) for of, fault in faults.items()]
    found = collect([file(number) for number in range(4)], records, 12)
    assert [one.file for one in found.units] == [2]
    assert found.failed == {of: f"reason {of}" for of in faults}
    assert found.unread == {0, 3}
