"""What is not certain: files that may exist, keys that may be outside, days of two calendars, leaves with one id."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from sidecar.access import Access
from sidecar.conversion.matching import witness
from sidecar.conversion.restore import find_leaf
from sidecar.crypto.key_material import KEY_MATERIAL_TYPE
from sidecar.embedding import orc_filters
from sidecar.embedding.key_files import _is_outside
from sidecar.embedding.orc_filters import OrcFilterMaker
from sidecar.embedding.rewritten_files import delete_files


class Refusing(PyArrowFileIO):
    """A store that deletes nothing, and says nothing of what there is; or that there is nothing."""

    def __init__(self, tells: bool) -> None:
        super().__init__()
        self.tells = tells

    def delete(self, location: Any) -> None:
        raise PermissionError(location)

    def new_input(self, location: str) -> Any:
        if not self.tells:
            raise PermissionError(location)
        return super().new_input(location)


def test_a_file_that_may_exist_is_named_as_left(tmp_path: Any) -> None:
    path = f"file:{tmp_path / 'a.parquet'}"
    assert delete_files(Access(Refusing(tells=False)), [path]) == [path]
    assert delete_files(Access(Refusing(tells=True)), [path]) == []


@pytest.mark.parametrize(("said", "is_outside"), [({}, False), ({"internalStorage": True}, False)])
def test_key_material_is_outside_if_it_says_so(said: dict[str, bool], is_outside: bool) -> None:
    assert _is_outside(json.dumps({"keyMaterialType": KEY_MATERIAL_TYPE, **said}).encode()) is is_outside
    assert _is_outside(json.dumps({"keyMaterialType": KEY_MATERIAL_TYPE, "internalStorage": False}).encode())
    assert not _is_outside(json.dumps({"internalStorage": False}).encode())


@pytest.mark.parametrize(("calendar", "keys"), [("proleptic_gregorian", 1), ("julian_gregorian", 2), ("unknown", 2)])
def test_days_have_the_keys_of_both_calendars_unless_the_file_has_one(
    calendar: str, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers ask for a day in the calendar that they take the file for."""
    monkeypatch.setattr(orc_filters, "hash_orc", lambda values, _: values)
    monkeypatch.setattr(orc_filters, "_moved_days", lambda values: values)
    inserted = list[Any]()
    maker: Any = SimpleNamespace(_tail=SimpleNamespace(calendar=calendar))
    one: Any = SimpleNamespace(insert=inserted.append)
    OrcFilterMaker._insert(maker, one, cast("Any", "days"), cast("Any", SimpleNamespace(family="date")))
    assert len(inserted) == keys


def test_of_two_leaves_with_an_id_none_has_the_filter() -> None:
    leaf: Any = SimpleNamespace(field_id=5, path="a")
    for leaves, found in (([leaf], leaf), ([leaf, leaf], None)):
        assert find_leaf(leaves, 5, "id") is found


def test_a_page_in_another_place_is_a_contradiction(tmp_path: Any) -> None:
    check = SimpleNamespace(contradiction="", misplaced="page 1 is not where the index says")
    part = SimpleNamespace(first_values=lambda found: check)
    file: Any = SimpleNamespace(name=str(tmp_path / "a.parquet"), column_part=lambda *place: part)
    found: Any = SimpleNamespace(leaf=SimpleNamespace(index=0, path="a"), kind="page-index", unit=0)
    asked = witness.FileWitness(file, cast("Any", SimpleNamespace(add=lambda *given: None)))
    assert asked.contradiction(0, found) == check.misplaced
