"""Both formats answer alike through one protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from sidecar.bundle.indexes.page_indexes import StoredPageIndex
from sidecar.data_files.formats import has_encrypted_footer, open_file, open_with, read_metadata
from sidecar.data_files.open_file import OpenFile
from sidecar.data_files.open_orc import OpenOrc
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource

ROWS = 25_000
TABLE = pa.table({"k": pa.array(range(ROWS), pa.int64()), "m": [{"a": n, "b": "x"} for n in range(ROWS)]})


@pytest.fixture(scope="module", params=["parquet", "orc"])
def file(request: Any, tmp_path_factory: pytest.TempPathFactory) -> OpenFile:
    path = str(tmp_path_factory.mktemp("one") / "file")  # the name does not say what it is
    if request.param == "orc":
        po.write_table(TABLE, path, bloom_filter_columns=[1], row_index_stride=10_000)
    else:
        pq.write_table(TABLE, path, row_group_size=10_000)
    source = LocalSource(path)
    opened = open_file(source)
    by_name = open_with(source, read_metadata(source, request.param.upper()))
    assert type(by_name) is type(opened)
    return opened


def test_units_and_leaves_are_the_same_in_both_formats(file: OpenFile) -> None:
    assert [tuple(unit) for unit in file.units] == [(0, 0, 10_000), (1, 10_000, 10_000), (2, 20_000, 5_000)]
    assert file.num_rows == ROWS
    assert [leaf.path for leaf in file.leaves] == ["k", "m.a", "m.b"]
    assert not any(file.is_encrypted(leaf) or file.is_locked(leaf) for leaf in file.leaves)


def test_parts_have_all_values_of_a_leaf(file: OpenFile) -> None:
    leaf = file.leaves[0]
    found = [values for part in range(file.parts) for values in file.values(part, leaf, "long")]
    assert [n for one in found for n in one.values.to_pylist()] == list(range(ROWS))
    assert 0 < sum(file.cost(part, leaf) for part in range(file.parts)) < file.size
    assert all(0 < file.part_size(part) < file.size for part in range(file.parts))


def test_trusted_filters_deny_no_value(file: OpenFile) -> None:
    leaf = file.leaves[0]
    parts = range(file.parts)
    found = [one for part in parts for one in file.own_indexes(part, file.leaves, ["bloom"])]
    assert [one.leaf.own_path for one in found] == ["k"] * len(found)
    assert bool(found) == isinstance(file, OpenOrc), "the ORC file was written with filters"
    assert bool(found) == any(file.filter_bytes(part, leaf) for part in parts)
    assert bool(found) == any(file.has_index(part, leaf, "bloom") for part in parts)
    assert all(one.is_sound and 0 < one.filter.estimated_fpp() < 0.1 for one in found)


def test_an_identity_is_that_of_the_data(file: OpenFile) -> None:
    assert len(file.fingerprint()) == 16
    assert file.is_distinctive()
    assert not file.is_unique
    assert file.digest(check=False) == file.digest(check=True)


def test_another_format_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeatureError, match="AVRO"):
        read_metadata(BytesSource(b""), "AVRO")
    with pytest.raises(DamagedFileError):
        open_file(BytesSource(b"Obj\x01" + bytes(40)))
    encrypted = Path(__file__).parents[1] / "data" / "parquet" / "apache_uniform_encryption.parquet.encrypted"
    assert has_encrypted_footer(LocalSource(str(encrypted)))
    assert not has_encrypted_footer(BytesSource(b"ORC" + bytes(40)))


def test_only_a_proven_page_index_of_the_same_place_is_taken_without_a_look(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(TABLE.select(["k"]), path, row_group_size=20_000, write_page_index=True)
    file = open_file(LocalSource(path))
    assert isinstance(file, OpenParquet)
    leaf, kind = file.leaves[0], file.index_kind(0, file.leaves[0], "id")
    own = [found.pieces for part in (0, 1) for found in file.own_indexes(part, file.leaves, ["page-index"])]

    def reason(pieces: tuple[bytes, ...], is_proven: bool) -> str:
        restored = file.column_part(0, leaf).restored(StoredPageIndex(*pieces, kind), is_proven)
        assert (restored.column_index, restored.offset_index) == (pieces if not restored.reason else (None, None))
        return restored.reason

    assert [reason(own[0], is_proven) for is_proven in (True, False)] == ["", ""]
    damaged = b"no column index", own[0][1]
    assert [bool(reason(damaged, is_proven)) for is_proven in (True, False)] == [False, True]
    assert ["other pages" in reason(own[1], is_proven) for is_proven in (True, False)] == [True, True]
