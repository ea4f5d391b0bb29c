"""Pruned scans of files by other writers, good and defective: no row is lost."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.parquet.footer import read_footer
from sidecar.parquet.thrift import BINARY, I32, I64, encode_struct
from sidecar.parquet.verify.file import verify_file
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.source import BytesSource
from tests.reading.cases import DATA, check

pytestmark = pytest.mark.usefixtures("each_footer_decoded_once")

ENUM = 4
"""A converted type."""
FULL_READ: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}

FOREIGN = [
    "j118_adaptive",
    "j118_v1_none",
    "j118_v1_snappy_dict",
    "j118_v2_zstd",
    "pa26_v2_zstd_dict",
    "rs60_v1_none_afterrg",
    "apache_alltypes_tiny_pages_plain",
    "apache_int32_with_null_pages",
    "variants/duck",
    "variants/base",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_other_writers_give_the_rows_of_a_full_read(name: str) -> None:
    data = (DATA / f"{name}.parquet").read_bytes()
    full = pq.read_table(BytesIO(data), **FULL_READ)
    totals = check(data, full, len(name), 25)
    assert totals["found"]


VARIANTS = [
    "m01_ok",
    "m01b_keep_old_footer",
    "m02_nolength",
    "m03_len_minus10",
    "m03_len_plus32",
    "m04_96bytes",
    "m06_reverse",
    "m08_hdr_unknown_long_nolen",
    "m09_unknown_fields",
    "m14_alg_unknown",
    "nan_gt",
    "nn_bloom",
    "f16_2byte",
    "f16_both",
    "iv_marker",
    "p02_no_oi_for_str",
    "p03_ci_without_oi_all",
    "p05_nullpage_nullcount0",
    "p06_ci_one_page_less",
    "p12_no_null_counts",
    "p15_unknown_column_order",
    "p16_oi_unknown_field",
    "p17_bad_hist",
    "p18_listbool_false_as_0",
    "pa_int96",
    "rs60_bad_null_pages_list",
]


@pytest.mark.parametrize("name", VARIANTS)
def test_defective_indexes_lose_no_rows(name: str) -> None:
    data = (DATA / "variants" / f"{name}.parquet").read_bytes()
    full = pq.read_table(BytesIO(data), **FULL_READ)
    check(data, full, len(name), 12, warnings=True)


@pytest.mark.parametrize(
    ("name", "predicate"),
    [
        ("p05_nullpage_nullcount0", "null_page is null"),
        ("p06_ci_one_page_less", "i32_req_asc = 17"),
        ("p17_bad_hist", "i32_req_asc = 17"),
    ],
)
def test_an_index_that_contradicts_itself_is_named(name: str, predicate: str) -> None:
    data = (DATA / "variants" / f"{name}.parquet").read_bytes()
    with open_scan(BytesSource(data), predicate) as scan:
        scan.to_table()
    assert any("column index not used" in warning for warning in scan.report.warnings)


@pytest.mark.parametrize(
    ("name", "error", "match"),
    [
        ("j118_enc_gcm_encfooter.parquet", UnsupportedFeatureError, "footer is encrypted"),
        ("j118_enc_gcmctr_plainfooter_aadsupplied.parquet", UnsupportedFeatureError, "column is encrypted"),
        ("variants/m12_filepath_other.parquet", UnsupportedFeatureError, "is in another file"),
        ("apache_datapage_v1-corrupt-checksum.parquet", DamagedFileError, "checksum of a page is wrong"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        sidecar.scan(str(DATA / name), "true")


def test_views_in_the_arrow_schema_are_read_as_strings() -> None:
    """The parquet crate and polars leave such schemas; Arrow can neither compare views nor pick some of them."""
    view, binary = pa.string_view(), pa.binary_view()
    views = pa.schema(
        [
            ("s", view),
            ("b", binary),
            ("st", pa.struct([("x", view), ("y", pa.int64())])),
            ("l", pa.list_(binary)),
            ("m", pa.map_(pa.string(), view)),
        ]
    )
    rows = [
        {
            "s": None if i % 7 == 0 else f"text {i}" * (i % 4),
            "b": str(i).encode(),
            "st": {"x": f"x{i}", "y": i},
            "l": [b"l" * (i % 30)] * (i % 3),
            "m": [("key", f"value {i}")],
        }
        for i in range(600)
    ]
    usual = pa.schema(
        [
            ("s", pa.string()),
            ("b", pa.binary()),
            ("st", pa.struct([("x", pa.string()), ("y", pa.int64())])),
            ("l", pa.list_(pa.binary())),
            ("m", pa.map_(pa.string(), pa.string())),
        ]
    )
    table = pa.Table.from_pylist(rows, usual)
    sink = BytesIO()
    pq.write_table(table, sink, row_group_size=300, max_rows_per_page=50, write_page_index=True)
    footer = read_footer(BytesSource(sink.getvalue()))
    (entry,) = footer.metadata.structs(5) or []
    entry.fields[2] = (BINARY, base64.b64encode(views.serialize()))
    end = encode_struct(footer.metadata)
    data = sink.getvalue()[: footer.offset] + end + len(end).to_bytes(4, "little") + b"PAR1"
    assert pq.read_schema(BytesIO(data)).equals(views)
    source = BytesSource(data)
    for predicate, kept in (
        ("s = 'text 5'", [5]),
        ("b in ('0x3737', '0x353939')", [77, 599]),
        ("st.x = 'x123' or s is null and st.y > 590", [123, 595]),
        ("s like 'text 41%' and st.y < 100", [41]),
    ):
        assert sidecar.scan(source, predicate).equals(table.take(kept)), predicate


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_instants_of_any_zone_and_unit_are_compared(unit: Any) -> None:
    file, ten = BytesIO(), 10**10 * {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit] // 10**9
    pq.write_table(pa.table({"t": pa.array([0, ten, None], pa.timestamp(unit, "America/New_York"))}), file)
    source = BytesSource(file.getvalue())
    assert sidecar.scan(source, "t = '1970-01-01T00:00:10+00:00'")["t"].cast(pa.int64()).to_pylist() == [ten]


@pytest.mark.parametrize("dictionary", [True, False])
def test_an_enum_is_a_text(dictionary: bool) -> None:
    """Arrow reads it as bytes. What a filter is asked for is what rows are compared with."""
    suits = [b"SPADES", b"HEARTS", None, b"CLUBS", b"\xff"] * 40
    table = pa.table({"suit": pa.array(suits, pa.binary()), "st": [{"suit": suit} for suit in suits]})
    sink = BytesIO()
    pq.write_table(table, sink, row_group_size=50, use_dictionary=dictionary, write_page_index=True)
    footer = read_footer(BytesSource(sink.getvalue()))
    for element in footer.metadata.structs(2) or []:
        if element.binary(4) == b"suit":
            element.fields[6] = (I32, ENUM)
    end = encode_struct(footer.metadata)
    source = BytesSource(sink.getvalue()[: footer.offset] + end + len(end).to_bytes(4, "little") + b"PAR1")
    for predicate, kept in (
        ("suit = 'CLUBS'", {b"CLUBS"}),
        ("suit in ('CLUBS', 'HEARTS')", {b"CLUBS", b"HEARTS"}),
        ("suit like 'S%'", {b"SPADES"}),
        ("suit > 'HEARTS'", {b"SPADES", b"\xff"}),
        ("st.suit = 'SPADES'", {b"SPADES"}),
        ("suit is null", {None}),
    ):
        found = sidecar.scan(source, predicate, ["suit"])["suit"].to_pylist()
        assert found == [suit for suit in suits if suit in kept], predicate
    assert sidecar.scan(source, "true", ["suit"], keys={"suit": ["CLUBS"]}).num_rows == 40


def test_numbers_in_key_value_metadata_are_skipped() -> None:
    """fastparquet 0.8 wrote them; readers of Thrift skip a field of another type."""
    sink = BytesIO()
    table = pa.table({"k": range(5)}).replace_schema_metadata({"a": "text", "b": "text"})
    pq.write_table(table, sink)
    footer = read_footer(BytesSource(sink.getvalue()))
    for entry in footer.metadata.structs(5) or []:
        if entry.binary(1) == b"b":
            entry.fields[2] = (I64, 7)
    end = encode_struct(footer.metadata)
    source = BytesSource(sink.getvalue()[: footer.offset] + end + len(end).to_bytes(4, "little") + b"PAR1")
    assert footer.key_value.keys() - read_footer(source).key_value.keys() == {"b"}
    assert sidecar.scan(source, "k > 2")["k"].to_pylist() == [3, 4]
    assert verify_file(source) == []
