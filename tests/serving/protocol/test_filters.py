"""Filters as clients write them: what they mean is exact or more, never less."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

import pytest
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest, RESTFileScanTask
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, In, IsNull, Not, NotNull, Or, StartsWith
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType, UnknownType

from sidecar.iceberg.predicates.predicate import as_expression, parse_predicate
from sidecar.serving.protocol import filters
from sidecar.serving.protocol.filters import MOST_NODES, MOST_PREDICATES, parse_filter, residual_of
from sidecar.serving.protocol.requests import parse_json
from tests.iceberg.cases import SCHEMA
from tests.tables import iceberg_schema

EQ_1 = {"type": "eq", "term": "l", "value": 1}
JAVA = [
    ("day", 8599, "day = '1993-07-18'"),
    ("ts", 1704067200000001, "ts = '2024-01-01 00:00:00.000001'"),
    ("tz", 1704067200000000, "tz = '2024-01-01T00:00:00Z'"),
    ("t", 1000001, "t = '00:00:01.000001'"),
    ("dec9", "1.50", "dec9 = 1.5"),
    ("fx", "0001FEFF", "fx = 0x0001feff"),
    ("u", "00000000-0000-0000-0000-0000000000ff", "u = '00000000-0000-0000-0000-0000000000ff'"),
    ("i", -5, "i = -5"),
    ("d", 0.5, "d = 0.5"),
    ("d", "Infinity", "d = inf"),
    ("bo", True, "bo = true"),
    ("s", "20", "s = '20'"),
    ("st.y", "ä", "st.y = 'ä'"),
]
"""Literals as Iceberg's Java library writes them, and the predicates that they mean."""
PYICEBERG = [
    *("day = '1993-07-18'", "ts = '2024-01-01 00:00:00.000001'", "tz = '2024-01-01T00:00:00Z'", "t = '00:00:01.5'"),
    *("dec38 = -1.5", "dec9 in (1.5, 1.25)", "i = 5", "l > -5", "f = 0.5", "d <= 1e300", "bo = true", "s = 'é\"'"),
    *(
        "st.x is null",
        "d is not nan",
        "s like 'v%'",
        "not (s like 'v%' or i != 2)",
        "u = '00000000-0000-0000-0000-0000000000ff'",
    ),
]
"""Predicates that pyiceberg's client writes and this parser reads."""


def parsed(text: str | dict[str, Any]) -> Any:
    return parse_filter(parse_json(text if isinstance(text, str) else json.dumps(text)), SCHEMA)


@pytest.mark.parametrize(("column", "value", "meant"), JAVA)
def test_literals_of_java(column: str, value: Any, meant: str) -> None:
    found = parsed({"type": "eq", "term": column, "value": value})
    assert as_expression(found.expression, SCHEMA) == parse_predicate(meant, SCHEMA)
    assert found.is_exact


@pytest.mark.parametrize("text", PYICEBERG)
def test_filters_of_pyiceberg(text: str) -> None:
    expression = parse_predicate(text, SCHEMA)
    found = parse_filter(sent_as_json(expression), SCHEMA)
    assert as_expression(found.expression, SCHEMA) == expression
    assert found.is_exact
    # The residual is one that pyiceberg reads, and it means the same.
    residual = json.dumps(residual_of(sent_as_json(expression), [SCHEMA]))
    assert RESTFileScanTask.model_validate({"data-file": FILE, "residual-filter": json.loads(residual)}).residual_filter
    assert as_expression(parsed(residual).expression, SCHEMA) == expression


def sent_as_json(expression: BooleanExpression) -> Any:
    return parse_json(PlanTableScanRequest(filter=expression).model_dump_json(by_alias=True))["filter"]


FILE = {
    "spec-id": 0, "content": "data", "file-path": "a", "file-format": "parquet",
    "file-size-in-bytes": 1, "record-count": 1,
}  # fmt: skip


def test_a_text_for_bytes_has_both_meanings() -> None:
    """pyiceberg sends hexadecimal digits for bytes and, for a text, the text; Java always sends digits."""
    found = parsed({"type": "eq", "term": "b", "value": "00010203"})
    assert found.expression == Or(EqualTo("b", b"\0\1\2\3"), EqualTo("b", b"00010203"))
    assert not found.is_exact
    assert parsed({"type": "in", "term": "b", "values": ["00"]}).expression == In("b", [b"\0", b"00"])
    assert parsed({"type": "eq", "term": "fx", "value": "abcd"}).expression == EqualTo("fx", b"abcd")
    assert parsed({"type": "eq", "term": "b", "value": "no digits"}).expression == EqualTo("b", b"no digits")
    for kind in ("not-in", "eq"):
        leaf = {"type": kind, "term": "b", "value": "00", "values": ["00"]}
        assert not parsed({"type": "not", "child": leaf}).is_exact


UNKNOWN: list[dict[str, Any]] = [
    {"type": "eq", "term": "i", "value": 1.5},
    {"type": "eq", "term": "i", "value": 2**31},
    {"type": "eq", "term": "l", "value": None},
    {"type": "eq", "term": "l", "value": True},
    {"type": "eq", "term": "s", "value": 5},
    {"type": "eq", "term": "d", "value": "NaN"},
    {"type": "eq", "term": "day", "value": 2**40},
    {"type": "eq", "term": "day", "value": "2024-01-01T05:00:00"},
    {"type": "eq", "term": "dec9", "value": "1.505"},
    {"type": "eq", "term": "ts", "value": "2024-01-01T00:00:00+02:00"},
    {"type": "eq", "term": "nope", "value": 1},
    {"type": "eq", "term": "st", "value": 1},
    {"type": "eq", "term": {"type": "transform", "transform": "bucket[4]", "term": "l"}, "value": 1},
    {"type": "eq", "term": "l"},
    {"type": "in", "term": "l", "values": [1, "x"]},
    {"type": "in", "term": "l", "values": 1},
    {"type": "near", "term": "l", "value": 1},
    {"term": "l"},
]


@pytest.mark.parametrize("unknown", UNKNOWN, ids=str)
def test_what_is_not_understood_is_true(unknown: dict[str, Any]) -> None:
    assert parsed(unknown).expression == AlwaysTrue()
    assert parsed({"type": "and", "left": unknown, "right": EQ_1}).expression == EqualTo("l", 1)
    for wide in (
        {"type": "or", "left": unknown, "right": EQ_1},
        {"type": "not", "child": unknown},
        {"type": "not", "child": {"type": "and", "left": EQ_1, "right": unknown}},
        {"type": "not", "child": {"type": "or", "left": EQ_1, "right": unknown}},
    ):
        found = parsed(wide)
        assert found.expression == AlwaysTrue()
        assert not found.is_exact
        # pyiceberg counts files with the residual true without reading them.
        assert residual_of(wide, [SCHEMA]) is not True


def test_negation_is_kept_where_everything_is_understood() -> None:
    found = parsed({"type": "not", "child": {"type": "and", "left": EQ_1, "right": {"type": "not-null", "term": "s"}}})
    assert found.expression == Not(And(EqualTo("l", 1), NotNull("s")))
    assert found.is_exact


def chain(kind: str, leaves: list[dict[str, Any]]) -> dict[str, Any]:
    return reduce(lambda left, right: {"type": kind, "left": left, "right": right}, leaves)


@pytest.mark.parametrize("kind", ["and", "or"])
def test_long_chains_become_shallow_trees(kind: str) -> None:
    node = chain(kind, [{"type": "lt", "term": "l", "value": n} for n in range(MOST_PREDICATES)])
    found = parse_filter(node, SCHEMA)
    assert found.is_exact
    assert depth(found.expression) == depth_of(residual_of(node, [SCHEMA])) == 9


def test_equalities_that_are_joined_by_or_become_a_list() -> None:
    """Each file would be compared with each of them."""
    leaves = [{"type": "eq", "term": ("l", "i")[n % 2], "value": n} for n in range(3000)]
    found = parse_filter(chain("or", [*leaves, {"type": "is-null", "term": "s"}]), SCHEMA)
    assert found.is_exact
    by_two, is_null = found.expression.left, found.expression.right
    assert (len(by_two.left.literals), len(by_two.right.literals)) == (1500, 1500)
    assert is_null == IsNull("s")


def test_too_many_predicates_are_true() -> None:
    many = chain("or", [{"type": "lt", "term": "l", "value": n} for n in range(MOST_PREDICATES + 1)])
    assert not parse_filter(many, SCHEMA).is_exact
    assert parse_filter({"type": "and", "left": many, "right": EQ_1}, SCHEMA).expression == EqualTo("l", 1)
    node = chain("or", [EQ_1] * (MOST_NODES + 1))
    assert not parse_filter(node, SCHEMA).is_exact
    assert residual_of(node, [SCHEMA]) is not True


def depth(expression: BooleanExpression) -> int:
    if isinstance(expression, And | Or):
        return 1 + max(depth(expression.left), depth(expression.right))
    return 0


def depth_of(node: Any) -> int:
    return 1 + max(depth_of(node["left"]), depth_of(node["right"])) if "left" in node else 0


def test_what_alternates_too_deeply_is_true() -> None:
    node: dict[str, Any] = EQ_1
    for n in range(5000):
        node = {"type": "or" if n % 2 else "and", "left": node, "right": EQ_1}
    assert not parse_filter(node, SCHEMA).is_exact
    assert residual_of(node, [SCHEMA]) is not True
    node = EQ_1
    for _ in range(5000):
        node = {"type": "not", "child": node}
    assert parse_filter(node, SCHEMA).expression == AlwaysTrue()


def test_too_many_values_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in many lists: a request of 8 MiB would take a minute."""
    monkeypatch.setattr(filters, "MOST_VALUES", 20)
    listed = {"type": "in", "term": "l", "values": list(range(10))}
    two = {"type": "and", "left": listed, "right": listed}
    assert parse_filter(two, SCHEMA).is_exact
    assert residual_of(two, [SCHEMA]) == two
    three = {"type": "and", "left": two, "right": listed}
    assert not parse_filter(three, SCHEMA).is_exact
    assert residual_of(three, [SCHEMA])["right"]["type"] == "or"


def test_ten_thousand_values() -> None:
    found = parsed({"type": "in", "term": "l", "values": list(range(10_000))})
    assert found.is_exact
    assert len(found.expression.literals) == 10_000


def test_names_in_any_case_unless_two_columns_have_the_name() -> None:
    schema = iceberg_schema("Name string, x long, X long")
    found = parse_filter({"type": "starts-with", "term": "nAME", "value": "a"}, schema, case_sensitive=False)
    assert found.expression == StartsWith("Name", "a")
    assert found.fields == {("nAME", 1)}
    assert not parse_filter({"type": "eq", "term": "x", "value": 1}, schema, case_sensitive=False).is_exact
    assert parse_filter({"type": "eq", "term": "x", "value": 1}, schema).expression == EqualTo("x", 1)
    assert not parse_filter({"type": "eq", "term": "name", "value": "a"}, schema).is_exact


def test_residuals_have_the_clients_names_and_literals() -> None:
    day, code = {"type": "gt", "term": "DAY", "value": 8599}, {"type": "eq", "term": "b", "value": "00"}
    residual = residual_of({"type": "and", "left": day, "right": code}, [SCHEMA], case_sensitive=False)
    assert residual["left"] == day
    assert residual["right"]["type"] == "or"  # Java cannot bind a text to bytes


@pytest.mark.parametrize("column", ["f", "d"])
def test_residuals_have_no_infinity_that_java_cannot_bind(column: str) -> None:
    """Java writes "Infinity", a text, and its executors make no number of it again."""
    for told in ('"gt", "value": "-Infinity"', '"in", "values": [0.5, "Infinity"]'):
        residual = residual_of(parse_json(f'{{"term": "{column}", "type": {told}}}'), [SCHEMA])
        assert [residual[side]["type"] for side in ("left", "right")] == ["is-null", "not-null"]
    finite = parse_json(f'{{"term": "{column}", "type": "lt", "value": 0.5}}')
    assert residual_of(finite, [SCHEMA]) == finite


def test_residuals_name_only_columns_that_the_client_reads() -> None:
    """Java looks up the names of a residual in the columns that it reads, and fails if one is not among them."""

    def names(node: Any) -> set[str]:
        return names(node["left"]) | names(node["right"]) if "left" in node else {node["term"]}

    unknown = {"type": "unknown", "term": {"type": "transform"}}
    assert names(residual_of({"type": "eq", "term": "b", "value": "00"}, [SCHEMA], select=["s"])) == {"b"}
    assert names(residual_of({"type": 1, "term": "b"}, [SCHEMA], select=["s"])) == {"b"}
    assert names(residual_of(unknown, [SCHEMA], select=["_file", "st.x", "s"])) == {"st.x"}
    older = Schema(NestedField(1, "key", LongType()), NestedField(10, "text", StringType()), schema_id=7)
    assert names(residual_of(unknown, [older, SCHEMA], select=["text"])) == {"text"}
    assert names(residual_of(unknown, [older, SCHEMA])) == {"id"}
    assert names(residual_of(unknown, [older, SCHEMA], select=["*"])) == {"id"}


@pytest.mark.parametrize(("number", "is_kept"), [("1.5", True), ("12345678901234567.89", False), ("1E+30", True)])
def test_residuals_keep_every_digit(number: str, is_kept: bool) -> None:
    node = parse_json(f'{{"type": "eq", "term": "dec38", "value": {number}}}')
    residual = json.dumps(residual_of(node, [SCHEMA]))
    assert (json.loads(residual)["type"] == "eq") == is_kept
    assert parse_filter(parse_json(residual), SCHEMA).is_exact
    assert not is_kept or parse_filter(parse_json(residual), SCHEMA) == parse_filter(node, SCHEMA)


@pytest.mark.parametrize("kind", ["is-null", "not-null"])
def test_required_columns_are_null_where_their_struct_is(kind: str) -> None:
    """pyiceberg binds ``a.b IS NULL`` as never true, and ``NOT (a.b IS NOT NULL)`` likewise."""

    def of(required: bool) -> bool:
        inner = StructType(NestedField(2, "b", LongType(), required=True))
        node = {"type": "not", "child": {"type": kind, "term": "a.b"}}
        return parse_filter(node, Schema(NestedField(1, "a", inner, required=required))).is_exact

    assert not of(required=False)
    assert of(required=True)


def test_opaque_residuals_compare_transforms() -> None:
    """Readers look up statistics of plain columns only. Java has no transform of structs, and no statistics of them."""
    name = {"type": "transform", "transform": "identity", "term": "st.y"}
    leaves = [
        {"type": "starts-with", "term": "st.y", "value": "a"},
        {"type": "in", "term": "st.y", "values": ["a", "b"]},
        {"type": "not-null", "term": "st.y"},
    ]
    node = chain("and", [{"type": "not", "child": chain("or", leaves)}, {"type": "is-null", "term": "st"}, {"type": 1}])
    found = residual_of(node, [SCHEMA], select=["l", "s"], is_opaque=True)
    assert found["left"]["left"]["child"] == chain("or", [{**leaf, "term": name} for leaf in leaves])
    assert found["left"]["right"] == {"type": "is-null", "term": "st"}
    assert found["right"] == filters.any_row("l")
    odd = Schema(NestedField(1, "nothing", UnknownType()))
    test = {"type": "not-null", "term": "nothing"}
    assert residual_of(test, [odd], is_opaque=True) == filters.any_row("nothing")
    assert residual_of(test, [odd]) == test
