"""What a file's own statements show to be false loses no row, is carried nowhere, and has its name without values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyorc
import pytest

from sidecar.bundle.indexes.row_indexes import StoredRowIndex, row_index_bounds, row_index_kind
from sidecar.embedding.embed import embed
from sidecar.embedding.extract import extract
from sidecar.errors import UnsupportedFeatureError
from sidecar.orc.index_streams import read_indexes
from sidecar.orc.inspect import inspect_file, probe_file
from sidecar.orc.protobuf import Message
from sidecar.orc.statistics.contradictions import Contradictions
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import read_tail
from sidecar.orc.verify.verify import verify_file
from sidecar.questions.bounds import Unknown
from sidecar.reading.file_scanning import open_scan
from sidecar.reading.orc_stripe_reader import OrcHandle
from sidecar.reading.orc_table_rows import _refuse_early_times
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource
from tests.orc.lies import (
    ROWS,
    STRIDE,
    Statements,
    bound,
    edited,
    no_values,
    nothing_but_zero,
    only_nulls,
    plain,
    table,
)

A, S, N, D, NONE, ST, X = range(1, 8)
TABLE = table()


def swap_entries(statements: Statements) -> None:
    """Positions of the second and third row group of a stripe stand in each other's place."""
    found: list[Any] = []
    for group in (1, 2):
        statements.entry(0, A, group, lambda entry: found.append(entry.all_bytes(1)))
    for group, own in zip((2, 1), found, strict=True):
        statements.entry(0, A, group, lambda entry, own=own: entry.set_all(1, own))


def without_bits(filter_: Message) -> None:
    data = filter_.bytes_(3)
    assert data is not None
    filter_.set(3, b"\1" + bytes(len(data) - 1))


LIES: dict[str, tuple[Callable[[Statements], None], str]] = {
    "nothing was counted": (lambda it: it.of_all(no_values), "a = 3001"),
    "nothing but a count of 0": (lambda it: it.of_all(nothing_but_zero), "s = 'k03001'"),
    "a stripe without its values": (lambda it: it.of_stripe(1, A, no_values), "a = 3001"),
    "a stripe with nulls in place of values": (lambda it: it.of_stripe(1, A, only_nulls), "a = 3001"),
    "no values of a struct": (lambda it: it.of_stripe(2, ST, no_values), "st.x = 5001"),
    "no values in a struct": (lambda it: it.of_stripe(2, X, no_values), "st.x = 5001"),
    "more values than rows": (lambda it: it.of_stripe(1, N, lambda m: m.set(1, ROWS)), "n is null"),
    "a stripe's maximum too low": (lambda it: it.of_stripe(2, A, bound(2, 5000)), "a = 5999"),
    "a stripe's minimum below the file's": (lambda it: it.of_file(A, bound(1, 3000)), "a = 5"),
    "a row group's maximum too low": (lambda it: it.of_group(2, A, 3, bound(2, 5500)), "a = 5999"),
    "a row group's minimum too high": (lambda it: it.of_group(0, A, 0, bound(1, 400)), "a = 5"),
    "a row group outside of its stripe": (lambda it: it.of_group(0, A, 0, bound(2, 4000)), "a = 5"),
    "nulls without a stream of nulls": (lambda it: it.of_group(1, A, 2, only_nulls), "a = 3001"),
    "values without being counted": (lambda it: it.of_group(1, N, 2, only_nulls), "n = 3001"),
    "positions of other row groups": (swap_entries, "a = 1001"),
    "a filter without the bits of a bound": (lambda it: it.filter(1, A, 0, without_bits), "a = 2000"),
    "fewer rows in the footer": (lambda it: it.tail.footer.set(6, 10), "n is null"),
}
NOT_NAMED = {"nothing but a count of 0"}
"""Not false: Trino leaves such statistics of a column of nulls."""


@pytest.fixture(scope="module", params=["uncompressed", "zlib"])
def data(request: Any) -> bytes:
    return plain(request.param)


def matching(predicate: str) -> Any:
    """The rows of the table for a predicate on one column."""
    name, _, rest = predicate.partition(" ")
    column = pc.struct_field(TABLE["st"], "x") if name == "st.x" else TABLE[name]
    if rest == "is null":
        return TABLE.filter(pc.is_null(column))
    return TABLE.filter(pc.equal(column, int(rest[2:]) if name != "s" else rest[3:-1]))


@pytest.mark.parametrize("lie", LIES)
def test_no_row_is_lost(data: bytes, lie: str) -> None:
    change, predicate = LIES[lie]
    with open_scan(BytesSource(edited(change, data)), predicate) as scan:
        found = scan.to_table()
    wanted = matching(predicate)
    assert wanted.num_rows
    assert found.to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize("lie", [lie for lie in LIES if lie not in NOT_NAMED])
def test_it_is_named_without_values(data: bytes, lie: str) -> None:
    source = BytesSource(edited(LIES[lie][0], data), "x.orc")
    found = verify_file(source)
    assert found
    shown = inspect_file(source)
    filters = [column.bloom_filter for unit in shown.units for column in unit.columns.values()]
    if lie == "fewer rows in the footer":
        return  # inspect shows the rows of the footer and of each stripe
    assert set(shown.not_believed) <= set(found)
    assert shown.not_believed or any(f and "denies" in f.reason for f in filters)


def test_a_sound_file_has_no_contradiction(data: bytes) -> None:
    source = BytesSource(data)
    assert verify_file(source) == []
    assert inspect_file(source).not_believed == []
    tail = read_tail(source)
    statistics = FileStatistics(source, tail)
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        for index in read_indexes(source, tail, footer, range(len(tail.columns)), statistics).values():
            assert index.contradictions == Contradictions()


@pytest.mark.parametrize("predicate", ["none is not null", "none = 5", "none > 5", "st.x is not null and st.x < 0"])
def test_a_column_of_nulls_is_still_passed_over(data: bytes, predicate: str) -> None:
    with open_scan(BytesSource(data), predicate) as scan:
        assert scan.to_table().num_rows == 0
    assert scan.report.row_groups_read == 0
    assert scan.report.warnings == []


def test_fields_of_null_structs_have_neither_values_nor_nulls(data: bytes) -> None:
    """ORC Java counts so. The stripe's count shows that such row groups were counted at all."""

    def count_as_java(message: Message) -> None:
        if message.varint(1) == 0:
            message.set(10, 0)

    def change(statements: Statements) -> None:
        for stripe, groups in ((0, range(4)), (1, range(2))):
            statements.of_stripe(stripe, X, count_as_java)
            for group in groups:
                statements.of_group(stripe, X, group, count_as_java)

    source = BytesSource(edited(change, data))
    assert verify_file(source) == []
    for predicate, read in (("st.x = 2500", 0), ("st.x is not null", 6), ("st.x is null", 6)):
        with open_scan(source, predicate) as scan:
            assert scan.to_table().num_rows == {"st.x = 2500": 0}.get(predicate, 3000)
        assert scan.report.row_groups_read == read


@pytest.mark.parametrize("predicate", ["a = 3001", "a > -5", "a < 7000", "a is null", "a is not null", "not (a = 3)"])
def test_files_without_a_row_index_have_all_of_their_rows(predicate: str) -> None:
    """As ORC Java writes them: no row index, and statistics of which nothing was counted."""
    sink = BytesIO()
    options: Any = {
        "row_index_stride": 0,
        "stripe_size": 8 << 10,
        "batch_size": 500,
        "compression": pyorc.CompressionKind.NONE,
    }
    with pyorc.Writer(sink, "struct<a:bigint,x:binary>", **options) as it:
        it.writerows(enumerate(TABLE["noise"].to_pylist()))
    data = edited(lambda it: it.of_all(no_values), sink.getvalue())
    assert len(read_tail(BytesSource(data)).stripes) > 2
    wanted = {"a = 3001": 1, "a is null": 0, "not (a = 3)": ROWS - 1}.get(predicate, ROWS)
    with open_scan(BytesSource(data), predicate) as scan:
        assert scan.to_table().num_rows == wanted
    assert any("are not used" in warning for warning in scan.report.warnings) or predicate == "not (a = 3)"
    assert all(unit.might_contain is not False for unit in probe_file(BytesSource(data), "a", 3001))


# --- what is carried ----------------------------------------------------------------------------------------


def carried_file(tmp_path: Path) -> str:
    """A file with a false entry in the row index of ``n``, and a filter of ``a`` that denies a bound."""

    def change(statements: Statements) -> None:
        statements.of_group(0, N, 1, bound(2, 4000))
        statements.filter(1, A, 0, without_bits)

    path = tmp_path / "a.orc"
    path.write_bytes(edited(change))
    return str(path)


def test_extract_leaves_false_indexes_out(tmp_path: Path) -> None:
    path = carried_file(tmp_path)
    report = extract([path], str(tmp_path / "a.puffin"), columns=["a", "n"])
    left_out = {(o.row_group, o.column, o.kind): o.reason for o in report.units if o.way == "none"}
    first = read_tail(LocalSource(path)).stripes[0].num_row_groups
    assert set(left_out) == {(1, "n", "page-index"), (first, "a", "page-index"), (first, "a", "bloom")}
    assert "outside those of the stripe" in left_out[1, "n", "page-index"]
    assert "denies the minimum" in left_out[first, "a", "bloom"]


def test_embed_keeps_no_filter_that_denies_a_bound(tmp_path: Path) -> None:
    path, target = carried_file(tmp_path), str(tmp_path / "b.orc")
    embed(path, into=target, bloom=["s"])
    with closing(LocalSource(target)) as source:
        tail = read_tail(source)
        for stripe in tail.stripes:
            footer = read_stripe_footer(source, tail, stripe)
            assert footer.stream(A, "BLOOM_FILTER_UTF8") is None
            assert footer.stream(S, "BLOOM_FILTER_UTF8") is not None


def entries_of(data: bytes, column: int) -> Iterator[tuple[StoredRowIndex, int]]:
    source = BytesSource(data)
    tail = read_tail(source)
    statistics = FileStatistics(source, tail)
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        index = read_indexes(source, tail, footer, [column], statistics)[column]
        assert index.row_index is not None
        kind = row_index_kind(tail, footer, tail.columns[column], "id")
        for group, part in zip(stripe.row_groups, index.row_index.parts, strict=True):
            yield StoredRowIndex(part, kind), group.rows


def test_a_sidecar_that_carries_one_does_not_use_it() -> None:
    """Sidecars of earlier releases may have entries that are false in themselves."""
    sound = dict(enumerate(entries_of(plain(), A)))
    data = edited(lambda it: it.of_group(0, A, 1, no_values))
    for number, (entry, rows) in enumerate(entries_of(data, A)):
        found = row_index_bounds(entry, rows)
        if number == 1:
            assert found == Unknown(f"0 values in {STRIDE} rows, but no nulls")
        else:
            assert found == row_index_bounds(*sound[number])


@pytest.mark.parametrize("edit", [no_values, nothing_but_zero])
def test_early_times_are_not_ruled_out_by_statistics_of_nothing(edit: Any) -> None:
    """pyarrow reads such times wrong, so rows of tables are read otherwise if there may be any."""
    sink = pa.BufferOutputStream()
    pyarrow.orc.write_table(pa.table({"t": pa.array([-1_500_000, 5], pa.timestamp("us"))}), sink)
    source = BytesSource(edited(lambda it: it.of_all(edit), sink.getvalue().to_pybytes()))
    tail = read_tail(source)
    with pytest.raises(UnsupportedFeatureError, match="before 1970"):
        _refuse_early_times(OrcHandle(source, tail), tail.columns[1:])
