"""Finding a sidecar: of the snapshot or of an ancestor, in a file that others have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from sidecar.access import Access
from sidecar.iceberg.statistics_files import find_sidecar as finding
from sidecar.iceberg.statistics_files.find_sidecar import find_sidecar, search_sidecar
from sidecar.iceberg.statistics_files.registering import register
from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import TOC
from tests.iceberg.registering_cases import (
    ROWS,
    damage,
    entry,
    head,
    serial,
    set_foreign,
    write_ours,
)

pytestmark = pytest.mark.usefixtures("no_pauses")


class FakeSidecarFile:
    """Stands for the bundle's reader: a Puffin file with a table of contents is a sidecar of one segment."""

    warnings: tuple[str, ...] = ()

    def __init__(self, source: Any, segments: list[BlobMetadata]) -> None:
        self.source, self.segments = source, segments
        self.is_sidecar = bool(segments)

    @classmethod
    def open(cls, source: Any, *, file_size: int, footer_length: int, table_uuid: str, columns: Any) -> Any:
        reader = PuffinReader(source, footer_length=footer_length)
        return cls(source, [blob for blob in reader.metadata.blobs if blob.type == TOC])

    def use_keys(self, *args: Any) -> None:
        """Take keys: blobs are not encrypted."""

    def close(self) -> None:
        self.source.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "SidecarFile", FakeSidecarFile)


@pytest.mark.usefixtures("opened")
class TestFindSidecar:
    """The sidecar of the snapshot, else of the nearest ancestor that has one."""

    def test_the_snapshots_own_is_found(self, table: Table) -> None:
        done = register(table, head(table), [], write_ours)
        found = find_sidecar(table.refresh(), Access())
        assert found is not None
        assert (found.snapshot_id, found.statistics.statistics_path) == (head(table), done.statistics_path)

    def test_the_nearest_ancestors_is_found(self, table: Table) -> None:
        first = head(table)
        register(table, first, [], write_ours)
        table.append(ROWS)
        second = head(table)
        register(table, second, [], write_ours)
        table.append(ROWS)
        set_foreign(table, {1: "1"})
        for asked, expected in ((None, second), (second, second), (first, first)):
            search = search_sidecar(table.refresh(), Access(), asked)
            assert search.found is not None
            assert search.found.snapshot_id == expected
            assert search.warnings == []

    def test_damage_is_a_warning_and_the_ancestor_is_taken(self, table: Table) -> None:
        first = head(table)
        register(table, first, [], write_ours)
        table.append(ROWS)
        done = register(table, head(table), [], write_ours)
        for how in (lambda data: data[:-1], lambda data: data[:-12] + b"\xff" * 12):
            damage(done.statistics_path, how)
            search = search_sidecar(table.refresh(), Access())
            assert search.found is not None
            assert search.found.snapshot_id == first
            assert len(search.warnings) == 1
            assert done.statistics_path.removeprefix("file:") in search.warnings[0]

    def test_without_any_there_is_none(self, table: Table, catalog: Any) -> None:
        assert find_sidecar(table, Access()) is None
        set_foreign(table, {1: "1"})
        assert find_sidecar(table.refresh(), Access()) is None
        assert find_sidecar(table.refresh(), Access(), 5) is None
        assert find_sidecar(catalog.create_table(f"db.statistics_{next(serial)}", ROWS.schema), Access()) is None


def test_a_file_of_foreign_blobs_is_no_sidecar_and_one_of_broken_ones_is_a_warning(table: Table) -> None:
    """With the bundle's own reader."""
    set_foreign(table, {1: "1"}, [("their-index-v1", [1], b"index")])
    search = search_sidecar(table.refresh(), Access())
    assert (search.found, search.warnings) == (None, [])
    register(table, head(table), [], write_ours)
    search = search_sidecar(table.refresh(), Access())
    assert search.found is None
    assert search.warnings
    assert all(f"snapshot {head(table)} is not used" in warning for warning in search.warnings)
    for how in (lambda data: data[:-1], lambda data: b""):
        damage(entry(table).statistics_path, how)
        search = search_sidecar(table.refresh(), Access())
        assert search.found is None
        assert len(search.warnings) == 1
    Path(entry(table).statistics_path.removeprefix("file:")).unlink()
    search = search_sidecar(table.refresh(), Access())
    assert search.found is None
    assert "cannot open the file" in search.warnings[0]
