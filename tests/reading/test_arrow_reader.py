"""pyiceberg's reader, taken apart: fails when a new version does it otherwise."""

from __future__ import annotations

import inspect
from io import BytesIO
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import pyarrow as theirs
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.types import LongType, StringType

from sidecar.access import Access
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.parquet.footer import read_footer
from sidecar.parquet.scan.schema_parts import finish_file, read_shape
from sidecar.planning.file_question import FileQuestion
from sidecar.reading import arrow_reader
from sidecar.reading.arrow_reader import TableReader
from sidecar.reading.file_view import _matching
from sidecar.storage.source import BytesSource
from tests.iceberg.cases import local
from tests.tables import create_with_rows


def test_pyicebergs_private_api_is_as_it_was() -> None:
    """Read arrow_reader and file_view beside ``_task_to_record_batches`` again when this fails, then adapt them."""
    parameters = {
        "_get_column_projection_values": "file projected_schema table_schema partition_spec file_project_field_ids",
        "_read_deletes": "io data_file",
        "_to_requested_schema": (
            "requested_schema file_schema batch downcast_ns_timestamp_to_us include_field_ids "
            "projected_missing_fields allow_timestamp_tz_mismatch format_model"
        ),
        "ArrowProjectionVisitor": (
            "file_schema downcast_ns_timestamp_to_us include_field_ids projected_missing_fields "
            "allow_timestamp_tz_mismatch format_model"
        ),
        "ArrowAccessor": "file_schema",
        "expression_to_pyarrow": "expr schema",
        "pyarrow_to_schema": "schema name_mapping downcast_ns_timestamp_to_us format_version",
        "_task_to_record_batches": (
            "io task bound_row_filter projected_schema table_schema projected_field_ids positional_deletes "
            "case_sensitive name_mapping partition_spec format_version downcast_ns_timestamp_to_us dictionary_columns"
        ),
    }
    for name, expected in parameters.items():
        assert list(inspect.signature(getattr(theirs, name)).parameters) == expected.split(), name
    source = inspect.getsource(theirs._task_to_record_batches)
    steps = [
        "fragment.physical_schema",
        "pyarrow_to_schema(",
        "_get_column_projection_values(",
        "bound_row_filter is not AlwaysTrue()",
        "translate_column_names(",
        "expression_to_pyarrow(bound_file_filter, file_schema)",
        "prune_columns(file_schema, projected_field_ids, select_full_types=False)",
        "filter=pyarrow_filter if not positional_deletes else None",
        "_combine_positional_deletes(",
        "_to_requested_schema(",
        "allow_timestamp_tz_mismatch=True",
    ]
    places = [source.find(step) for step in steps]
    assert -1 not in places, steps[places.index(-1)]
    assert places == sorted(places)
    assert "ArrowAccessor(file_schema)," in inspect.getsource(theirs._to_requested_schema)
    made_anew = inspect.getsource(theirs.ArrowProjectionVisitor)
    assert "pa.LargeListArray.from_arrays(list_array.offsets, value_array)" in made_anew
    assert "pa.MapArray.from_arrays(map_array.offsets, key_result, value_result, arrow_field)" in made_anew
    text = inspect.getsource(ArrowScan)
    for step in (
        "bind(table_metadata.schema(), row_filter, case_sensitive=case_sensitive)",
        "Config().get_bool(DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE)",
        "self._record_batches_from_scan_tasks_and_deletes([task], deletes_per_file)",
    ):
        assert step in text


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    made: Table = catalog.create_table(
        "db.arrow_reader",
        pa.schema([("k", pa.int64()), ("st", pa.struct([("x", pa.int32()), ("y", pa.string())]))]),
        properties={"write.parquet.row-group-limit": "100"},
    )
    k = np.arange(500)
    made.append(pa.table({"k": k, "st": [{"x": n, "y": str(n)} for n in range(500)]}, schema=made.schema().as_arrow()))
    return made


def test_a_view_of_the_footer_alone_is_that_of_the_file(table: Table) -> None:
    row_filter = parse_predicate("k >= 120 and k < 310 and st.x > 0", table.schema())
    [task] = table.scan(row_filter=row_filter).plan_files()
    with table.io.new_input(task.file.file_path).open() as stream:
        data = stream.read()
    footer = read_footer(BytesSource(data))
    reader = TableReader(
        table, table.schema().select("st.x"), FileQuestion(row_filter, table.schema()), Access(table.io)
    )
    view, fragment = reader.view(task, finish_file(b"", footer.raw))
    assert view.physical_schema.equals(read_shape(footer).schema)
    assert view.scanned_row_groups(fragment) == {1, 2, 3}
    assert view.projected.column_names == ["k", "st.x", "st"]
    theirs = pa.Table.from_batches(reader.read_whole(task, {})).combine_chunks()
    rows = pa.table({"k": pa.array(range(120, 310)), "st": [{"x": n} for n in range(120, 310)]})
    [ours] = view.project(rows.cast(pa.schema([("k", pa.int64()), ("st", pa.struct([("x", pa.int32())]))])))
    assert pa.Table.from_batches([ours]).equals(theirs)


def test_a_small_local_file_is_read_by_the_thread_that_asks(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    class Watched(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            threads.add(get_ident())
            return super().read(size)

    def watched(io: Any, path: str) -> Any:
        with io.new_input(path).open() as stream:
            data = Watched(stream.read())
        return SimpleNamespace(open=lambda: pa.PythonFile(data, "r"))

    row_filter = parse_predicate("k >= 120 and k < 310", table.schema())
    [task] = table.scan(row_filter=row_filter).plan_files()
    monkeypatch.setattr(arrow_reader, "file_at", watched)
    read = TableReader(table, table.schema(), FileQuestion(row_filter, table.schema()), Access(table.io)).read_whole(
        task, []
    )
    assert pa.Table.from_batches(read)["k"].to_pylist() == list(range(120, 310))
    assert threads == {get_ident()}


ROWS = pa.table(
    {
        "a": [1, 2, 3, 4],
        "b": [5, 6, None, 8],
        "st": [{"x": 1, "y": "p"}, None, {"x": 3, "y": None}, None],
        "n": pa.array([1, 2, None, 4], pa.int32()),
    }
)
CHANGES: dict[str, tuple[list[Any], tuple[str, ...]]] = {
    "nothing": ([], ()),
    "another column of the same name": (
        [lambda update: update.delete_column("b"), lambda update: update.add_column("b", LongType())],
        ("a", "b"),
    ),
    "columns change places": ([lambda update: update.move_before("b", "a")], ("a", "b")),
    "names change places": (
        [lambda update, old=old, new=new: update.rename_column(old, new) for old, new in ("ac", "ba", "cb")],
        ("a", "b"),
    ),
    "fields of a struct change places": ([lambda update: update.move_before("st.y", "st.x")], ("st",)),
    "another field of the same name": (
        [
            lambda update: update.delete_column("st.y"),
            lambda update: update.add_column(("st", "y"), StringType()),
        ],
        ("st",),
    ),
    "a wider type": ([lambda update: update.update_column("n", LongType())], ("a", "n")),
    "a part of a struct": ([], ("st.y",)),
    "one column": ([], ("b",)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_batch_gets_the_columns_that_pyiceberg_gives_it(
    change: str, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second batch of a file too, of which pyiceberg is not asked again if values stay."""
    name = f"db.projected_{list(CHANGES).index(change)}"
    table = create_with_rows(catalog, name, [ROWS], **{"write.parquet.row-group-limit": "2"})
    steps, columns = CHANGES[change]
    for step in steps:
        with table.update_schema(allow_incompatible_changes=True) as update:
            step(update)
    monkeypatch.setattr(arrow_reader, "SMALL", 0)
    compare_batches(table, table.schema().select(*columns) if columns else table.schema())


def compare_batches(table: Table, schema: Schema) -> None:
    """Compare both batches of the only file of a table with those of pyiceberg."""
    [task] = table.scan().plan_files()
    theirs = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    reader = TableReader(table, schema, FileQuestion(AlwaysTrue(), table.schema()), Access(table.io))
    assert reader.field_ids == theirs._projected_field_ids
    ours = list(reader.read_whole(task, ()))
    assert [batch.num_rows for batch in ours] == [2, 2]
    for found, wanted in zip(ours, theirs.to_record_batches([task]), strict=True):
        assert found.equals(wanted)
        assert found.schema.equals(wanted.schema, check_metadata=True)
        for column, other in zip(found.columns, wanted.columns, strict=True):
            assert column.type.equals(other.type, check_metadata=True)


LISTS = pa.array([[{"e": 1}], [], [], [None]])
NANOSECONDS = pa.array([1_000, 2_000, 3_001, None], pa.timestamp("ns"))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (LISTS, LISTS.type),
        (NANOSECONDS, pa.timestamp("us")),  # pyiceberg cuts off what is less than a microsecond
        (NANOSECONDS.cast(pa.timestamp("ns", "UTC")), pa.timestamp("us", "UTC")),
    ],
    ids=["lists", "times", "times in UTC"],
)
def test_every_batch_of_a_foreign_file_is_converted(
    values: Any, kind: Any, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_reader, "SMALL", 0)
    table = catalog.create_table(f"db.foreign_{abs(hash(kind))}", pa.schema([("v", kind)]))
    table.append(pa.table({"v": pa.nulls(4, kind)}))
    with table.transaction() as transaction:
        mapping = table.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    [task] = table.scan().plan_files()
    pq.write_table(pa.table({"v": values}), local(task.file.file_path), row_group_size=2)
    compare_batches(table, table.schema())


def test_columns_in_another_order_are_found_by_name(table: Table) -> None:
    schema = pa.schema([("k", pa.int64()), ("m", pa.int64())])
    catalog_table = create_with_rows(table.catalog, "db.projected_orders", [pa.table({"k": [1], "m": [2]})], schema)
    [task] = catalog_table.scan().plan_files()
    reader = TableReader(
        catalog_table,
        catalog_table.schema(),
        FileQuestion(AlwaysTrue(), catalog_table.schema()),
        Access(catalog_table.io),
    )
    with catalog_table.io.new_input(task.file.file_path).open() as stream:
        view, _ = reader.view(task, stream.read())
    turned = pa.record_batch({"m": [2], "k": [1]})
    assert [view.project_batch(turned).to_pylist() for _ in range(2)] == [[{"k": 1, "m": 2}]] * 2


@pytest.mark.parametrize("most", [arrow_reader.SMALL, 0])
@pytest.mark.parametrize("other", ["k", "a.b"])
def test_a_small_file_gives_the_columns_of_a_scan_by_arrow(
    other: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns are the same with and without Arrow's scanner, also if a name has a dot."""
    rows = pa.table({other: np.arange(120) * 2, "s": ["x", None, "z"] * 40, "a": np.arange(120)})
    path = tmp_path / "small.parquet"
    pq.write_table(rows, path, row_group_size=50)
    given = {"file_path": str(path), "file_format": FileFormat.PARQUET, "file_size_in_bytes": path.stat().st_size}
    chosen: Any = SimpleNamespace(columns=[SimpleNamespace(name="a"), SimpleNamespace(name="s")])
    view: Any = SimpleNamespace(physical_schema=rows.schema, projected=chosen)
    monkeypatch.setattr(arrow_reader, "SMALL", most)
    with path.open("rb") as file:
        fragment = ds.ParquetFileFormat().make_fragment(pa.PythonFile(file, "r"))
        found = arrow_reader._batches_of(DataFile.from_args(**given), pa.PythonFile(file, "r"), fragment, view, None)
        assert pa.Table.from_batches(found).equals(rows.select(["a", "s"]))


NAMES = pa.array(["p", None, "q", "p"]).dictionary_encode()


@pytest.mark.parametrize(
    "values",
    [
        pa.StructArray.from_arrays([NAMES], ["x"]),
        pa.ListArray.from_arrays([0, 1, 1, 2, 4], NAMES),
        pa.StructArray.from_arrays([pa.StructArray.from_arrays([NAMES], ["y"])], ["x"]),
    ],
    ids=["a struct", "a list", "a struct of a struct"],
)
def test_a_small_file_may_have_dictionaries_in_nested_columns(values: Any, catalog: Any) -> None:
    """Arrow's reader of whole files fails for them if there is more than one row group."""
    table = catalog.create_table(f"db.nested_names_{abs(hash(values.type))}", pa.schema([("v", plain(values.type))]))
    table.append(pa.table({"v": pa.nulls(4, plain(values.type))}))
    with table.transaction() as transaction:
        mapping = table.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    [task] = table.scan().plan_files()
    pq.write_table(pa.table({"v": values}), local(task.file.file_path), row_group_size=2)
    ours = pa.Table.from_batches(
        TableReader(table, table.schema(), FileQuestion(AlwaysTrue(), table.schema()), Access(table.io)).read_whole(
            task, ()
        )
    )
    assert ours["v"].to_pylist() == values.to_pylist()


def plain(kind: Any) -> Any:
    """Return the type without dictionaries, which Iceberg does not have."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(plain(kind.value_type))
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def test_rows_that_match_come_in_their_order_however_many_chunks_there_are() -> None:
    keys = np.random.default_rng(3).integers(0, 4, 300_000)
    values = pa.chunked_array([pa.array(part, mask=part == 3) for part in np.array_split(keys, 7)])
    for expression, wanted in (
        (pc.field("k") == 1, keys == 1),
        (~(pc.field("k") == 1), (keys != 1) & (keys != 3)),
        (pc.scalar(True), keys >= 0),
        (pc.scalar(False), keys < 0),
    ):
        assert np.array_equal(_matching(expression, pa.table({"k": values})), np.flatnonzero(wanted))
