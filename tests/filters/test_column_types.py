"""The table of Iceberg types against pyiceberg's and pyarrow's; no other module reads the text of a type."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, promote
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_required_bytes

from sidecar.errors import UsageError
from sidecar.filters.arrow_types import arrow_type
from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.literals import literal_from_text
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.values import probe_orc
from sidecar.filters.values import probe_hashes
from sidecar.parquet.footer import read_footer
from sidecar.storage.source import BytesSource
from tests.syntax import tree_of

PACKAGE = Path(__file__).resolve().parents[2] / "sidecar"
PLAIN: list[PrimitiveType] = [
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DateType(),
    TimeType(),
    TimestampType(),
    TimestamptzType(),
    TimestampNanoType(),
    TimestamptzNanoType(),
    StringType(),
    BinaryType(),
    UUIDType(),
]
DECIMALS = [DecimalType(p, s) for p in range(1, 39) for s in range(p + 1)]
FIXED = [FixedType(n) for n in (1, 2, 12, 16, 100, 999_999)]
SOME: list[PrimitiveType] = [*PLAIN, *FIXED[:4], DecimalType(9, 2), DecimalType(18, 2), DecimalType(38, 10)]
VALUES: dict[str, tuple[str, Any]] = {
    "boolean": ("true", True),
    "integer": ("5", 5),
    "float": ("1.5", 1.5),
    "decimal": ("1", Decimal(1)),
    "date": ("2024-01-31", 19753),
    "time": ("12:34", 45_240_000_000),
    "timestamp": ("2024-01-31", 1_706_659_200_000_000),
    "string": ("abc", "abc"),
    "uuid": ("f79c3e09-677c-4bbd-a479-3f349cb785e7", bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7")),
}
ENCODINGS = [
    *("int32", "int64", "uint32", "uint64", "float", "double", "float16", "boolean", "int96", "interval"),
    *("int32/date", "int32/time-ms", "int64/time-us", "int64/time-ns", "byte_array", "flba:16", "flba:2"),
    *(f"int64/timestamp-{unit}" for unit in ("ms", "us", "ns")),
    *(f"{stored}/decimal:{s}" for stored in ("int32", "int64", "flba:16", "byte_array") for s in (0, 2, 10)),
]
ORC_ENCODINGS = [
    *(f"orc/{name}" for name in ("long", "date", "double", "float", "bytes", "ascii", "char:5", "varchar:5")),
    *(f"orc/{name}:{scale}" for name in ("decimal", "decimal64") for scale in (0, 2, 10)),
    *("orc/instant:java", "orc/instant:c++", "orc/timestamp:java:UTC", "orc/timestamp:c++:UTC"),
]


def parsed(theirs: PrimitiveType) -> ColumnType:
    return ColumnType.parse(str(theirs))


def arrow_of(theirs: PrimitiveType) -> Any:
    schema: Any = schema_to_pyarrow(Schema(NestedField(1, "c", theirs)), include_field_ids=False)
    kind = schema.field(0).type
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def value_of(kind: ColumnType) -> tuple[str, Any]:
    """A literal of the type as a person writes it, and as a bound literal holds it."""
    if kind.family == "binary":
        data = b"\x05" * (kind.width or 3)
        return f"0x{data.hex()}", data
    text, value = VALUES[kind.family]
    return text + "Z" * kind.zoned, value * 1000 if kind.unit == "ns" else value


# --- against pyiceberg and pyarrow --------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", PLAIN, ids=str)
def test_a_plain_type_is_known_by_its_name(theirs: PrimitiveType) -> None:
    kind = parsed(theirs)
    assert (kind.base, str(kind)) == (str(theirs), str(theirs))
    assert kind.family
    assert (kind.precision, kind.scale) == (None, None)


def test_decimals_have_the_digits_that_pyiceberg_reads() -> None:
    for theirs in DECIMALS:
        kind = parsed(theirs)
        assert (kind.base, kind.precision, kind.scale) == ("decimal", theirs.precision, theirs.scale)
        assert str(kind) == str(theirs)
        assert kind.width == decimal_required_bytes(theirs.precision)


@pytest.mark.parametrize("theirs", FIXED, ids=str)
def test_fixed_has_the_length_that_pyiceberg_reads(theirs: FixedType) -> None:
    kind = parsed(theirs)
    assert (kind.base, kind.family, kind.width, str(kind)) == ("fixed", "binary", len(theirs), str(theirs))


@pytest.mark.parametrize("text", ["decimal(9,2)", "decimal( 9 , 2 )", "decimal(09, 02)", "decimal(9,  2)"])
def test_blanks_and_zeros_change_no_type(text: str) -> None:
    assert ColumnType.parse(text) == ColumnType.parse("decimal(9, 2)")


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "unknown", "variant", "Long", "long ", "timestamp_ms", "list<int>"),
        *("decimal", "decimal(9)", "decimal(-1, 2)", "decimal(9, 2", "decimal(9, 2)x", "decimal(٩, 2)"),
        *("fixed", "fixed[]", "fixed[-1]", "fixed[1", "decimal(" + "9" * 5000 + ", 2)"),
        *map(str, (GeometryType(), GeographyType(), UnknownType())),
    ],
)
def test_a_type_that_is_not_known_has_no_facts(text: str) -> None:
    assert ColumnType.parse(text) == ColumnType(base=text)
    assert str(ColumnType.parse(text)) == text


@pytest.mark.parametrize("text", ["decimal(0, 0)", "decimal(39, 2)", "decimal(3, 9)", "fixed[0]", "fixed[1000000]"])
def test_a_type_that_no_parquet_writer_has_gets_no_encoding(text: str) -> None:
    kind = ColumnType.parse(text)
    assert kind.base in ("decimal", "fixed")
    assert kind.encoding is None


@pytest.mark.parametrize("theirs", [t for t in SOME if not isinstance(t, DecimalType)], ids=str)
def test_the_width_is_that_of_single_values(theirs: PrimitiveType) -> None:
    kind = parsed(theirs)
    data = to_bytes(theirs, value_of(kind)[1])
    assert kind.width == (None if isinstance(theirs, StringType | BinaryType) else len(data))


@pytest.mark.parametrize("theirs", SOME, ids=str)
def test_arrow_types_are_those_of_pyiceberg(theirs: PrimitiveType) -> None:
    if isinstance(theirs, StringType | BinaryType):
        with pytest.raises(UsageError):
            arrow_type(parsed(theirs))
    else:
        assert arrow_type(parsed(theirs)) == arrow_of(theirs)


@pytest.mark.parametrize("theirs", [*SOME, *DECIMALS[::37]], ids=str)
def test_the_usual_encoding_is_that_of_a_written_file(theirs: PrimitiveType) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"c": pa.array([None], arrow_of(theirs))})
    pq.write_table(table, sink, store_decimal_as_integer=True)
    (leaf,) = read_footer(BytesSource(sink.getvalue().to_pybytes())).columns
    assert parsed(theirs).encoding == leaf.encoding.name
    # nothing but a UUID is lost on the way: Arrow's storage type does not annotate it
    assert leaf.iceberg_type == str(FixedType(16) if isinstance(theirs, UUIDType) else theirs)


def promoted(stored: PrimitiveType, column: PrimitiveType) -> bool:
    try:
        return stored == column or bool(promote(stored, column))
    except ResolveError:
        return False


def test_a_type_holds_what_pyiceberg_promotes_to_it() -> None:
    for column in SOME:
        for stored in SOME:
            expected = promoted(stored, column)
            names = {str(column), str(stored)}
            if names == {"string", "binary"} or names == {"uuid", "fixed[16]"}:
                expected = False  # pyiceberg reads such bytes, but no schema may change so
            if isinstance(column, DecimalType) and isinstance(stored, DecimalType):
                expected &= column.scale == stored.scale  # pyiceberg compares the scale with itself
            assert parsed(column).holds(parsed(stored)) == expected, (column, stored)


def test_what_is_held_compares_and_few_types_more() -> None:
    more = {("string", "binary"), ("binary", "string")}
    more |= {(kind, f"{kind}_ns") for kind in ("timestamp", "timestamptz")}
    for column in SOME:
        for stored in SOME:
            decimals = isinstance(column, DecimalType) and isinstance(stored, DecimalType)
            expected = parsed(column).holds(parsed(stored)) or decimals
            expected |= (str(column), str(stored)) in more
            assert parsed(column).compares_with(parsed(stored)) == expected, (column, stored)


# --- the tables that are keyed by it ------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", SOME, ids=str)
def test_a_person_can_write_a_value_of_each_type(theirs: PrimitiveType) -> None:
    text, value = value_of(parsed(theirs))
    assert literal_from_text(text, str(theirs), quoted=True) == value


@pytest.mark.parametrize("theirs", SOME, ids=str)
def test_a_value_has_bytes_in_the_listed_encodings_and_in_no_others(theirs: PrimitiveType) -> None:
    kind = parsed(theirs)
    value = value_of(kind)[1]
    for encoding in map(Encoding.parse, ENCODINGS):
        name = "flba" if encoding.name in ("flba:16", "flba:2") else encoding.name
        listed = name in kind.stored_as and encoding.width in (None, kind.width, 4, 8)
        if encoding.is_decimal:
            listed = kind.scale == encoding.scale and encoding.width is not None
        assert (probe_hashes(value, str(theirs), encoding).verdict != "unknown") == listed, encoding


@pytest.mark.parametrize("theirs", SOME, ids=str)
def test_a_value_has_keys_in_the_listed_orc_encodings_and_in_no_others(theirs: PrimitiveType) -> None:
    kind = parsed(theirs)
    for encoding in map(OrcEncoding.parse, ORC_ENCODINGS):
        listed = encoding.family in kind.orc_stored_as and encoding.scale == kind.scale
        verdict = probe_orc(value_of(kind)[1], str(theirs), encoding).verdict
        assert (verdict != "unknown") == listed, encoding


@pytest.mark.parametrize("theirs", [*SOME, *DECIMALS, *FIXED], ids=str)
def test_encodings_are_registered_and_certain(theirs: PrimitiveType) -> None:
    kind = parsed(theirs)
    assert kind.encoding is not None
    assert Encoding.parse(kind.encoding).name == kind.encoding
    if kind.orc_encoding is not None:
        assert OrcEncoding.parse(kind.orc_encoding).family in kind.orc_stored_as


# --- nobody else reads types --------------------------------------------------------------------------------

EXCEPTIONS = {
    "filters/column_types.py": "the table itself",
    "filters/encoding.py": "names of encodings such as int32/decimal:2",
    "filters/orc/encoding.py": "names of encodings such as orc/decimal:2",
    "filters/leaf.py": "names of encodings; it makes a type of a Parquet leaf and reads none",
    "filters/arrow_types.py": "Arrow's types by name",
    "reading/file_columns.py": "Arrow's and pyiceberg's types by name",
}
TEXT_METHODS = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split", "rsplit"),
    *("find", "index", "compile", "match", "fullmatch", "search", "sub"),
}
TYPE_TEXT = re.compile(r"decimal|fixed|timestamp|^uuid|^_ns$|tz$|^[(\[]$")
NAMES = {*map(str, PLAIN), "decimal", "fixed"}
TEMPORAL = {"timestamptz", "timestamp_ns", "timestamptz_ns"}


def strings(*nodes: ast.AST | None) -> set[str]:
    """The text constants below some nodes."""
    below = (inner for node in nodes if node is not None for inner in ast.walk(node))
    return {n.value for n in below if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def is_type_text(node: ast.AST) -> bool:
    """Whether an expression is a variable of a type's text, by its name."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.endswith("type")


def reads_of_types(tree: ast.AST) -> Iterator[int]:
    """Lines that take a type's text apart, compare it with a name, or have a table by the names of types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            texts = strings(*node.args)
            if node.func.attr in TEXT_METHODS and any(map(TYPE_TEXT.search, texts)):
                yield node.lineno
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            if re.fullmatch(r"[2-9]:-1", ast.unparse(node.slice)):  # [6:-1] of fixed[16]
                yield node.lineno
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(is_type_text, sides)) and strings(*sides) & NAMES:
                yield node.lineno
        elif isinstance(node, ast.Dict | ast.Set):
            keys = node.keys if isinstance(node, ast.Dict) else node.elts
            yield from [node.lineno] if strings(*keys) & TEMPORAL else []


def test_no_other_module_parses_a_type() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if (lines := sorted(set(reads_of_types(tree_of(path)))))
    }
    assert {name: lines for name, lines in found.items() if name not in EXCEPTIONS} == {}
    assert set(EXCEPTIONS) == set(found), "an exception that is not needed any more"


@pytest.mark.parametrize(
    "line",
    [
        'iceberg_type.startswith("decimal")',
        'kind.partition("(")[0]',
        're.compile(r"fixed\\[([0-9]+)\\]")',
        "name[6:-1]",
        "kind[8:-1].split(',')",
        'leaf.iceberg_type.endswith("_ns")',
        'iceberg_type == "uuid"',
        'column_type in ("string", "binary")',
        '{"int": 4, "timestamptz": 8}',
    ],
)
def test_the_search_finds_what_modules_did_before(line: str) -> None:
    assert list(reads_of_types(ast.parse(line)))
