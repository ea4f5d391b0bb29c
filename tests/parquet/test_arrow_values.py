"""Leaf values through pyarrow: flattening, damage, sources other than local files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.errors import DamagedFileError
from sidecar.parquet.arrow_values import ValueReader, flatten
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource

NESTED = pa.table(
    {
        "m": pa.array([[("a", 1), ("b", None)], None, [], [("c", 3)]], pa.map_(pa.string(), pa.int64())),
        "s": pa.array(
            [{"x": 1, "y": [1, 2]}, None, {"x": None, "y": None}, {"x": 4, "y": [None, 7]}],
            pa.struct([("x", pa.int32()), ("y", pa.list_(pa.int64()))]),
        ),
        "ls": pa.array(
            [[{"p": 1, "q": "z"}], None, [None, {"p": None, "q": "k"}], []],
            pa.list_(pa.struct([("p", pa.int32()), ("q", pa.string())])),
        ),
        "d": pa.array(["a", "b", "a", None]).dictionary_encode(),
        "f": pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.int32(), 2)),
    }
)
LEAVES = {
    "m.key_value.key": ["a", "b", "c"],
    "m.key_value.value": [1, 3],
    "s.x": [1, 4],
    "s.y.list.element": [1, 2, 7],
    "ls.list.element.p": [1],
    "ls.list.element.q": ["z", "k"],
    "d": ["a", "b"],
    "f.list.element": [1, 2, 3, 5, 6],
}


def _file(path: Path, table: pa.Table, **options: object) -> str:
    pq.write_table(table, path, **options)
    return str(path)


def _leaves(reader: ValueReader, leaves: list[int], **options: int) -> list[list[object]]:
    values: list[list[object]] = [[] for _ in leaves]
    for arrays in reader.batches(0, leaves, **options):
        for into, array in zip(values, arrays, strict=True):
            into.extend(array.drop_null().to_pylist())
    return values


@pytest.mark.parametrize("leaf", range(len(LEAVES)))
def test_each_leaf_alone(tmp_path: Path, leaf: int) -> None:
    with ValueReader(LocalSource(_file(tmp_path / "n.parquet", NESTED))) as reader:
        assert reader.path(leaf) == list(LEAVES)[leaf]
        assert _leaves(reader, [leaf]) == [LEAVES[list(LEAVES)[leaf]]]


def test_all_leaves_together_in_small_batches(tmp_path: Path) -> None:
    with ValueReader(LocalSource(_file(tmp_path / "n.parquet", NESTED))) as reader:
        values = _leaves(reader, list(range(len(LEAVES))), batch_rows=1)
        assert reader.path(len(LEAVES)) is None
    expected = dict(LEAVES, d=["a", "b", "a"])  # each batch names its distinct values
    assert values == list(expected.values())


def test_any_source_reads_the_same(tmp_path: Path) -> None:
    path = Path(_file(tmp_path / "n.parquet", NESTED))
    with ValueReader(BytesSource(path.read_bytes(), "memory://n.parquet")) as reader:
        assert _leaves(reader, [2, 3]) == [LEAVES["s.x"], LEAVES["s.y.list.element"]]


def test_dictionary_entries_without_a_row_are_left_out() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 2]), pa.array(["a", "b", "c"]))
    (values,) = flatten(array)
    assert sorted(values.to_pylist()) == ["a", "c"]


def test_values_below_a_null_parent_are_hidden() -> None:
    hidden = pa.StructArray.from_arrays([pa.array([1, 2])], names=["x"], mask=pa.array([False, True]))
    assert flatten(hidden)[0].to_pylist() == [1, None]


def test_a_page_checksum_is_verified(tmp_path: Path) -> None:
    path = _file(
        tmp_path / "c.parquet",
        pa.table({"a": list(range(1000)), "b": list(range(1000))}),
        write_page_checksum=True,
        use_dictionary=False,
        compression="none",
    )
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data = bytearray(Path(path).read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 1
    Path(path).write_bytes(data)
    with ValueReader(LocalSource(path)) as reader:
        with pytest.raises(DamagedFileError, match="pyarrow cannot decode"):
            _leaves(reader, [0, 1])
        assert _leaves(reader, [1]) == [list(range(1000))]


def test_no_parquet_file_at_all(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 this is not a file PAR1")
    with pytest.raises(DamagedFileError, match=r"x\.parquet"):
        ValueReader(LocalSource(str(tmp_path / "x.parquet")))
