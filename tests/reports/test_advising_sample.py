"""What ``advise`` reads: few row groups, bounded bytes, both formats; and what it says of what it cannot read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, ListType, LongType, NestedField, StringType

import sidecar
from sidecar.data_files import open_parquet
from sidecar.data_files.formats import open_file
from sidecar.data_files.open_file import PartValues
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.errors import UsageError
from sidecar.iceberg.resolve import TableColumn
from sidecar.reports.advising import sample as advising_sample
from sidecar.reports.advising.sample import ENCRYPTED, TOO_LARGE, spread_order, spread_with_neighbours
from sidecar.reports.advising.verdicts import refusal
from sidecar.storage.opening import open_source
from sidecar.storage.source import BytesSource, CountingSource
from tests.iceberg.cases import local, replaced
from tests.iceberg.encrypted_tables import encrypted_table
from tests.iceberg.mixed_tables import append_files, append_orc, parquet_file
from tests.tables import create_with_rows, iceberg_schema

FILES = 8


def part(number: int, rows: int = 200) -> pa.Table:
    rng = np.random.default_rng(number)
    keys = rng.integers(0, 2**40, rows)
    return pa.table({"k": keys, "text": [f"{key:020x}" * 4 for key in keys.tolist()], "few": rng.integers(0, 3, rows)})


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    return create_with_rows(catalog, "db.sampled", map(part, range(FILES)))


@pytest.fixture
def chunks_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The column and the cost of each column chunk that is read."""
    found: list[tuple[str, int]] = []
    read = OpenParquet.values

    def reading(self: OpenParquet, number: int, leaf: Any, kind: str) -> Iterator[PartValues]:
        found.append((leaf.path, self.cost(number, leaf)))
        return read(self, number, leaf, kind)

    monkeypatch.setattr(OpenParquet, "values", reading)
    return found


def test_only_so_many_row_groups_are_read(table: Table, chunks_read: list[tuple[str, int]]) -> None:
    sample = sidecar.advise(table, row_groups=5).sample
    assert (sample.files, sample.row_groups) == (5, 5)
    assert sorted({name for name, _ in chunks_read}) == ["few", "k", "text"]
    assert len(chunks_read) == 5 * 3
    footers_and_page_indexes = 5 * (64 << 10)
    assert sum(cost for _, cost in chunks_read) <= sample.bytes_read
    assert sample.bytes_read <= sum(cost for _, cost in chunks_read) + footers_and_page_indexes


@pytest.mark.parametrize("most", [1, 3_000, 12_000, 40_000])
def test_only_so_many_bytes_are_read_and_small_columns_first(
    table: Table, chunks_read: list[tuple[str, int]], most: int
) -> None:
    columns = {column.name: column for column in sidecar.advise(table, max_bytes=most).columns}
    assert sum(cost for _, cost in chunks_read) <= most
    read = {name for name, _ in chunks_read}
    for name, column in columns.items():
        assert (column.evidence is None) == (name not in read)
        assert column.evidence is not None or column.reason == TOO_LARGE
    if most == 3_000:
        sampled = {name: column.evidence.row_groups_sampled for name, column in columns.items() if column.evidence}
        assert sampled["few"] == FILES > sampled["k"] > 0


def test_of_columns_that_are_wholly_in_dictionaries_only_these_are_read(catalog: Any) -> None:
    many = pa.table({"word": [f"word {number % 7}" for number in range(20_000)]})
    table = create_with_rows(catalog, "db.sampled_words", [many, many])
    advice = sidecar.advise(table)
    (path, *_) = [task.file.file_path for task in table.scan().plan_files()]
    chunk = pq.read_metadata(local(path)).row_group(0).column(0)
    assert advice.sample.bytes_read < chunk.total_compressed_size * 2 + 2 * (4 << 10)
    file = open_file(open_source(path))
    assert file.cost(0, file.leaves[0]) == chunk.data_page_offset - chunk.dictionary_page_offset


def test_the_sample_is_spread_and_has_neighbours() -> None:
    assert spread_with_neighbours(5, 16) == ([0, 1, 2, 3, 4], [])
    chosen, following = spread_with_neighbours(1000, 16)
    assert len(chosen) == 16
    assert len(following) == 4
    assert all(number - 1 in chosen for number in following)
    assert max(np.diff([0, *chosen, 1000])) < 2 * 1000 / 12
    assert sorted(spread_order(13)) == list(range(13))
    assert spread_order(13)[:3] == [0, 8, 4]


def test_neighbours_tell_how_often_files_that_overlap_have_the_same_value(catalog: Any) -> None:
    """Files overlap their neighbours and have other values than these; files far apart do not overlap."""
    files = [pa.table({"k": np.arange(200) * 7 + number * 700 + number % 2}) for number in range(40)]
    table = create_with_rows(catalog, "db.sampled_pairs", files)
    (column,) = sidecar.advise(table, row_groups=8).columns
    assert column.evidence is not None
    assert column.evidence.existing.by_bounds == pytest.approx(2, abs=0.1)
    assert column.evidence.existing.with_filters == pytest.approx(1, abs=0.1)


def test_values_that_only_neighbours_share(catalog: Any) -> None:
    """Each value is in two files, one after the other, and bounds rule nothing out."""
    own = [np.random.default_rng(number).integers(0, 2**60, 150) for number in range(121)]
    rows = [pa.table({"k": np.concatenate(own[number : number + 2])}) for number in range(120)]
    table = catalog.create_table("db.sampled_twice", rows[0].schema)
    append_files(table, [parquet_file(table, part, Record()) for part in rows])
    evidence = sidecar.advise(table, row_groups=12).columns[0].evidence
    assert evidence is not None
    assert evidence.existing.by_bounds == 120
    assert evidence.existing.with_filters == pytest.approx(2 + 118 * evidence.filter_rate, abs=0.4)


def test_columns_of_encrypted_files_are_not_judged(catalog: Any) -> None:
    table = encrypted_table(catalog, "db.sampled_secret")
    columns = {column.name: column for column in sidecar.advise(table).columns}
    assert (columns["ssn"].filters, columns["ssn"].reason, columns["ssn"].evidence) == ("not judged", ENCRYPTED, None)
    assert columns["id"].evidence is not None


def test_no_column_of_files_with_encrypted_footers_is_judged(catalog: Any) -> None:
    table = encrypted_table(catalog, "db.sampled_locked", files=2, plaintext_footer=False)
    advice = sidecar.advise(table)
    assert {(column.filters, column.reason) for column in advice.columns} == {("not judged", ENCRYPTED)}
    assert len(advice.warnings) == 2
    assert advice.commands == []


def test_a_damaged_file_is_a_warning(catalog: Any) -> None:
    table = create_with_rows(catalog, "db.sampled_damaged", map(part, range(4)))
    path = next(iter(table.scan().plan_files())).file.file_path
    with replaced(local(path), b"not a data file"):
        advice = sidecar.advise(table)
    assert any(path in text for text in advice.warnings)
    assert {column.name: column.filters for column in advice.columns} == {"k": "yes", "text": "yes", "few": "no"}


def test_orc_files(catalog: Any) -> None:
    schema = iceberg_schema("k long, text string")
    table = catalog.create_table("db.sampled_orc", schema, properties={"write.format.default": "orc"})
    for number in range(6):
        append_orc(table, part(number).select(["k", "text"]), row_index_stride=100)
    advice = sidecar.advise(table, fpp=0.1)
    assert [column.filters for column in advice.columns] == ["yes", "yes"]
    report = sidecar.build(table, ["k", "text"], kinds=["bloom"], fpp=0.1, engine="local", as_="parquet")
    for column, built in zip(advice.columns, report.columns, strict=True):
        assert column.evidence is not None
        assert column.evidence.filter_bytes == pytest.approx(built.filter_bytes, rel=0.2)
        assert column.evidence.distinct_in_table == 1200
    assert advice.alter_table == (
        "ALTER TABLE db.sampled_orc SET TBLPROPERTIES ('write.orc.bloom.filter.columns'='k,text')"
    )


def test_files_that_lack_a_column_are_kept(catalog: Any) -> None:
    table = create_with_rows(catalog, "db.sampled_evolved", [part(number).select(["few"]) for number in range(4)])
    with table.update_schema() as update:
        update.union_by_name(part(0).schema)
    for number in range(4, 12):
        table.append(part(number).select(["few", "k", "text"]))
    evidence = sidecar.advise(table, ["k"]).columns[0].evidence
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    key = int(part(5)["k"][0].as_py())
    assert evidence is not None
    assert sidecar.plan(table, f"k = {key}").funnel.kept == 1 + 4
    assert evidence.existing.with_filters == pytest.approx(5, abs=0.5)
    assert evidence.absent is not None
    assert evidence.absent.with_filters == pytest.approx(4, abs=0.5)


def test_partitions_count_as_bounds(catalog: Any) -> None:
    schema, bucket_of = iceberg_schema("k long"), BucketTransform(4).transform(LongType())
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b"))
    table = catalog.create_table("db.sampled_buckets", schema, partition_spec=spec)
    for start in range(0, 300, 100):  # pyiceberg itself cannot write buckets without its Rust part
        keys = [[key for key in range(start, start + 100) if bucket_of(key) == bucket] for bucket in range(4)]
        append_files(table, [parquet_file(table, pa.table({"k": own}), Record(b)) for b, own in enumerate(keys)])
    (column,) = sidecar.advise(table).columns
    assert {len(list(table.scan(EqualTo("k", key)).plan_files())) for key in range(0, 300, 60)} == {3}
    assert column.evidence is not None
    assert column.evidence.existing.by_bounds == 3
    assert column.evidence.existing.with_filters == pytest.approx(1, abs=0.1)


def test_a_column_that_the_table_is_partitioned_by(catalog: Any) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "few"))
    schema = iceberg_schema("few long, k long")
    table = catalog.create_table("db.sampled_identity", schema, partition_spec=spec)
    table.append(part(1).select(["few", "k"]))
    few, _ = sidecar.advise(table).columns
    assert (few.filters, few.evidence, few.kinds) == ("no", None, [])


def test_columns_that_no_filter_suits_are_not_read(catalog: Any, chunks_read: list[tuple[str, int]]) -> None:
    words = ListType(11, StringType(), element_required=False)
    schema = Schema(NestedField(1, "d", DoubleType()), NestedField(2, "l", words), NestedField(3, "flag", LongType()))
    table = catalog.create_table("db.sampled_odd", schema)
    rows = {"d": [0.5, 1.5], "l": [["a"], ["b"]], "flag": [None, None]}
    for _ in range(4):
        table.append(pa.table(rows, schema=table.schema().as_arrow()))
    columns = {column.name: column.filters for column in sidecar.advise(table).columns}
    assert columns == {"d": "no", "flag": "no", "l.element": "not judged"}
    assert {name for name, _ in chunks_read} == {"d", "flag"}


def test_a_name_with_dots_of_its_own() -> None:
    schema = Schema(NestedField(1, "x.y", LongType()))
    assert refusal(TableColumn(1, "long", "x.y"), schema, PartitionSpec()) is None


def test_a_page_index_where_row_groups_are_in_order(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_parquet, "PAGE_ROWS", 200)
    n = np.arange(8_000)
    rows = pa.table({"at": n, "k": n * 7919 % 8_000})
    table = catalog.create_table("db.sampled_pages", rows.schema)
    parts = [rows.slice(0, 4_000), rows.slice(4_000)]
    append_files(table, [parquet_file(table, part, Record(), use_dictionary=False) for part in parts])
    at, k = sidecar.advise(table).columns
    assert (at.kinds, k.kinds) == (["bloom", "theta", "page-index"], ["bloom", "theta"])
    assert at.evidence is not None
    assert at.evidence.pages_left == pytest.approx(1 / 20)
    assert sidecar.advise(table).commands == [
        "sidecar build db.sampled_pages --columns at --kinds page-index --catalog cat",
        "sidecar build db.sampled_pages --columns at,k --catalog cat",
    ]


def test_page_indexes_of_the_files_are_used(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = pa.table({"at": np.arange(2_000)})
    options: Any = {"data_page_size": 800, "write_batch_size": 100, "use_dictionary": False, "write_page_index": True}
    pq.write_table(rows, path, **options)
    file = open_file(open_source(str(path)))
    bounds = file.page_bounds(0, file.leaves[0])
    assert bounds is not None
    assert bounds.lower == sorted(bounds.lower)  # type: ignore[type-var]
    assert len(bounds.lower) == len(file.page_sizes) > 10


def test_an_empty_table_and_wrong_options(catalog: Any, table: Table) -> None:
    empty = catalog.create_table("db.sampled_empty", part(0).schema)
    assert (sidecar.advise(empty).snapshot_id, sidecar.advise(empty).columns) == (None, [])
    with pytest.raises(UsageError, match="no column 'nix'"):
        sidecar.advise(table, ["nix"])
    with pytest.raises(UsageError, match="sample is empty"):
        sidecar.advise(table, row_groups=0)
    assert advising_sample.spread(3, 0) == []


def test_a_column_chunk_of_a_remote_file_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = pa.table({"k": np.arange(50_000), "text": [f"text {number}" for number in range(50_000)]})
    pq.write_table(rows, path, use_dictionary=False)
    source = CountingSource(BytesSource(path.read_bytes(), "s3://bucket/a.parquet"))
    file = open_file(source)
    before = source.bytes_read
    for leaf, kind in zip(file.leaves, ("long", "string"), strict=True):
        assert sum(len(found.values) for found in file.values(0, leaf, kind)) == 50_000  # type: ignore[arg-type]
    file.close()
    footers = 2 * (64 << 10)  # Arrow reads it for itself
    assert source.bytes_read - before <= sum(file.cost(0, leaf) for leaf in file.leaves) + footers
