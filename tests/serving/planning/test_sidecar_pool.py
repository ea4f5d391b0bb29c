"""Opened sidecars stay in memory between plans: what is read again, and when they are given up."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.access import Access
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import StorageError
from sidecar.iceberg.statistics_files.find_sidecar import find_sidecar
from sidecar.serving.planning import file_selection
from sidecar.serving.planning.scan_planner import ScanPlanner
from sidecar.serving.planning.sidecar_pool import AT_ONCE, SidecarPool
from sidecar.storage.source import CountingSource
from tests.iceberg.cases import local, replaced
from tests.serving.planning.asking import PYICEBERG, ask_for_facts, equal, paths
from tests.tables import create_with_rows

FILES = 4


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Each file has values between those of the others. The sidecar is longer than the tail that is always read."""
    parts = [pa.table({"s": [f"v{n:05}" for n in range(at, 60_000, FILES)]}) for at in range(FILES)]
    return create_with_rows(catalog, "db.sidecar_pool", parts, columns=["s"])


@contextmanager
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """The ranges that are read of sidecars."""
    found: list[tuple[int, int]] = []
    read = CountingSource.read

    def noted(self: CountingSource, offset: int, length: int) -> bytes:
        found.append((offset, length))
        return read(self, offset, length)

    with monkeypatch.context() as patched:
        patched.setattr(CountingSource, "read", noted)
        yield found


def kept(planner: ScanPlanner, table: Table, value: str = "v00004") -> tuple[int, int, str]:
    """The number of files of a lookup, the bytes read of the index, and why it was not asked."""
    found, facts = ask_for_facts(planner, table, equal("s", value), PYICEBERG)
    return len(paths(found)), facts.index_bytes_read, facts.fallback


def test_the_second_lookup_reads_only_bit_rows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    planner = ScanPlanner()
    with reads(monkeypatch) as first:
        assert kept(planner, table, "v00004x")[::2] == (0, "")
    with reads(monkeypatch) as second:
        assert kept(planner, table, "v00008x") == (0, sum(length for _, length in second), "")
    opened = sidecar.open_sidecar(table)
    ((segment, bundle),) = [(one, one.bundles[1]) for one in opened.segments]
    (entry,) = [one for one in segment.entries if one.fields == (1,)]
    begin = entry.offset + bundle.toc.groups[0].offset
    opened.close()
    assert len(second) == 1
    ((offset, length),) = second
    assert begin <= offset < offset + length <= entry.offset + bundle.toc.toc_offset
    assert sum(length for _, length in first) > 32 << 10 > length


def test_threads_do_not_share_a_sidecar(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    planner = ScanPlanner()
    in_use: set[int] = set()
    use_keys = SidecarFile.use_keys
    close = SidecarFile.close

    def used(self: SidecarFile, *args: Any) -> None:
        if self.on_close is not None:
            assert id(self) not in in_use
            in_use.add(id(self))
        use_keys(self, *args)

    def closed(self: SidecarFile) -> None:
        in_use.discard(id(self))
        close(self)

    monkeypatch.setattr(SidecarFile, "use_keys", used)
    monkeypatch.setattr(SidecarFile, "close", closed)
    with ThreadPoolExecutor(2 * AT_ONCE) as pool:
        found = list(pool.map(lambda n: kept(planner, table, f"v{n:05}")[0], range(100)))
    assert set(found) <= {1, 2}
    assert not in_use


@pytest.mark.parametrize("is_there", [False, True], ids=["gone", "shorter"])
def test_a_sidecar_that_cannot_be_opened_any_more(table: Table, is_there: bool) -> None:
    planner = ScanPlanner()
    path = local(table.metadata.statistics[0].statistics_path)
    assert kept(planner, table)[0] == 1
    with replaced(path, path.read_bytes()[:-1] if is_there else None):
        assert kept(planner, table)[::2] == (FILES, file_selection.UNREADABLE)
    assert kept(planner, table)[::2] == (1, "")


def test_a_sidecar_whose_bits_are_damaged_is_read_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of the same length are found by their checksums. What is wrong is not remembered."""
    planner = ScanPlanner()
    path = local(table.metadata.statistics[0].statistics_path)
    data, values = path.read_bytes(), [f"v{n:05}" for n in range(40)]
    assert {kept(planner, table, value)[2] for value in values} == {""}
    with replaced(path, bytes(len(data) - (33 << 10)) + data[-(33 << 10) :]):
        found = {kept(planner, table, value)[::2] for value in values}
    assert (FILES, file_selection.DAMAGED) in found
    assert all(reason == file_selection.DAMAGED for count, reason in found if count == FILES)
    with reads(monkeypatch) as again:
        assert kept(planner, table, values[0])[2] == ""
    assert sum(length for _, length in again) > 32 << 10


def test_bytes_are_read_with_the_rights_of_whoever_asks(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __init__(self, io: Any) -> None:
            self._io = io

        def __getattr__(self, name: str) -> Any:
            return getattr(self._io, name)

        def check_location(self, location: str) -> None:
            if location.endswith(".stats"):
                raise StorageError("not for this caller", file=location)

    planner = ScanPlanner()
    assert kept(planner, table)[0] == 1
    monkeypatch.setattr(table, "io", Refusing(table.io))
    assert kept(planner, table)[::2] == (FILES, file_selection.UNREADABLE)


def opened_by(sidecars: SidecarPool, table: Table, scope: object = None) -> SidecarFile:
    found = find_sidecar(table, Access(), opener=sidecars.opener(scope))
    assert found is not None
    return found.sidecar


def test_who_gets_a_kept_sidecar(table: Table) -> None:
    sidecars = SidecarPool()
    first = opened_by(sidecars, table)
    assert opened_by(sidecars, table) is not first  # it is in use
    first.close()
    assert opened_by(sidecars, table, "another caller") is not first
    again = opened_by(sidecars, table)
    assert again is first
    assert again.index_reads == 0
    again.use_keys(EncryptionKeys())
    again.close()
    assert opened_by(sidecars, table) is not first  # keys were given to it


def test_memory_is_bounded(table: Table) -> None:
    sidecars = SidecarPool()
    first = opened_by(sidecars, table)
    weight = first.memory
    assert weight > 32 << 10
    first.close()
    small = SidecarPool(weight * 2)
    opened = [opened_by(small, table, scope) for scope in range(3)]
    for one in opened:
        one.close()
    assert [opened_by(small, table, scope) is opened[scope] for scope in range(3)] == [False, True, True]
    assert opened_by(SidecarPool(0), table).on_close is not None


def test_entries_of_files_are_forgotten(table: Table) -> None:
    sidecars = SidecarPool()
    opened = opened_by(sidecars, table)
    (segment,) = opened.segments
    (entry,) = segment.files([0])
    assert entry is not None
    assert segment.files([0])[0] is entry
    opened.close()
    assert opened_by(sidecars, table) is opened
    assert segment.files([0])[0] is not entry
