"""Predicates: the grammar, exact literals, and pyiceberg's own parser as the oracle where it can read."""

from __future__ import annotations

import contextlib
import datetime as dt
from decimal import Decimal
from math import inf
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNaN,
    IsNull,
    LessThan,
    Not,
    NotEqualTo,
    NotIn,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.parser import parse as pyiceberg_parse
from pyiceberg.expressions.visitors import bind
from pyiceberg.types import ListType, LongType, NestedField, StructType, TimestampNanoType

from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.predicates.predicate import as_expression, normalise, parse_predicate
from tests.tables import iceberg_schema

SCHEMA = iceberg_schema(
    "i int, l long, f float, d double, dec decimal(9, 2), s string, day date, ts timestamp, tz timestamptz, "
    "u uuid, b binary, fx fixed[2], bo boolean, t time",
    NestedField(15, "st", StructType(NestedField(16, "x", LongType()))),
    NestedField(17, "li", ListType(18, LongType())),
    NestedField(19, "my col", LongType()),
    NestedField(20, "ns", TimestampNanoType()),
    NestedField(21, "or", LongType()),
)


def bound(expression: BooleanExpression) -> BooleanExpression:
    return bind(SCHEMA, expression, case_sensitive=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("i = 5", 5),
        ("i = -5", -5),
        ("i = 5.0", 5),
        ("5 = i", 5),
        ("l == 1e3", 1000),
        ("l = 9223372036854775807", 2**63 - 1),
        ("l = 9007199254740993", 2**53 + 1),
        ("f = 0.5", 0.5),
        ("d = 1e3", 1000.0),
        ("d = -.5", -0.5),
        ("f = 0.1", 0.1),
        ("f = 3.4028235e38", 3.4028235e38),
        ("f = 16777217", 16777217.0),
        ("d = 9007199254740993", 9007199254740992.0),
        ("dec = 1.5", Decimal("1.50")),
        ("dec = -0.05", Decimal("-0.05")),
        ("dec = 1e3", Decimal("1000.00")),
        ("s = 'it''s'", "it's"),
        ("s = '5'", "5"),
        ('"my col" = 7', 7),
        ('"or" = 7', 7),
        ("st.x = 7", 7),
        ("day = '2024-01-01'", 19723),
        ("ts = '2024-01-01'", 19723 * 86_400_000_000),
        ("ts = '2024-01-01T00:00:01.5'", 19723 * 86_400_000_000 + 1_500_000),
        ("tz = '2024-01-01 01:00:00+01:00'", 19723 * 86_400_000_000),
        ("t = '12:30'", 45_000_000_000),
        ("u = 'f79c3e09-677c-4bbd-a479-3f349cb785e7'", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes),
        ("b = '0x00ff'", b"\x00\xff"),
        ("b = 0x0004d2", b"\x00\x04\xd2"),
        ("0X00fF = b", b"\x00\xff"),
        ("b in (0x)", b""),
        ("f = inf", inf),
        ("f = -inf", -inf),
        ("d = +INFINITY", inf),
        ("-inf = d", -inf),
        ("Infinity = d", inf),
        ("d in (-inf)", -inf),
        ("fx = '0x00ff'", b"\x00\xff"),
        ("bo = TRUE", True),
        ("bo = 'false'", False),
        ("s like 'plain'", "plain"),
        ("i in (5)", 5),
    ],
)
def test_literals_are_exact_in_their_columns_type(text: str, value: object) -> None:
    expression = bound(parse_predicate(text, SCHEMA))
    assert type(expression).__name__ == "BoundEqualTo"
    found = expression.literal.value
    assert (type(found), found) == (type(value), value)
    if isinstance(value, Decimal):
        assert found.as_tuple() == value.as_tuple()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("i = 1.5", "whole number"),
        ("i = 40000000000", "32 bits"),
        ("i in (1, 40000000000)", "32 bits"),
        ("i between 0 and 40000000000", "32 bits"),
        ("i = 'abc'", "not a number"),
        ("i = true", "not a number"),
        ("l = 9223372036854775808", "64 bits"),
        ("dec = 1.505", "2 decimal places"),
        ("dec = 12345678901", "9 digits"),
        ("d = 1e400", "out of range"),
        ("i = inf", "not a number"),
        ("i = 0x05", "not a number"),
        ("b = 0x0", "not hexadecimal"),
        ("fx = 0x00", "1 bytes"),
        ("s = inf", "not quoted"),
        ("inf is null", "no column 'inf'"),
        ("d = -infinite", "character 5"),
        ("d = 'nan'", "NaN"),
        ("s = 5", "not quoted"),
        ("s = abc", "expected a literal"),
        ('s = "abc"', "single quotes"),
        ("day = '2024-13-01'", "month"),
        ("day = '2024-01-01 10:00:00'", "not a date"),
        ("day = 2024-01-01", "not a date"),
        ("ts = '2024-01-01T00:00:00Z'", "time zone"),
        ("tz = '2024-01-01T00:00:00'", "time zone"),
        ("fx = '0x00'", "1 bytes"),
        ("bo = 1", "neither true nor false"),
        ("st = 3", "struct"),
        ("li = 3", "list"),
        ("li.element = 3", "list"),
        ("sx = 3", "Did you mean"),
        ("I = 3", "Did you mean i?"),
        ("i = null", "IS"),
        ("i in (1, null)", "IS"),
        ("i in ()", "expected a literal"),
        ("i not = 3", "IN, BETWEEN, LIKE"),
        ("s like 'a%b'", "wildcard"),
        ("s like 'a_b'", "wildcard"),
        ("i like 'a%'", "string"),
        ("(i = 1", "expected )"),
        ("i = 1)", "AND, OR or the end"),
        ("i = 1 i = 2", "character 7"),
        ("i = 'abc", "character 5"),
        ("i = 5; drop", "character 6"),
        ("", "expected a column"),
        ("or = 3", "expected a column"),
        ("5", "expected a comparison"),
        ("not " * 101 + "i = 1", "nested too deeply"),
        ("(" * 101 + "i = 1" + ")" * 101, "nested too deeply"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=r"(?s).*" + words.replace("?", r"\?").replace(")", r"\)")):
        parse_predicate(text, SCHEMA)


def test_a_column_that_is_called_inf_comes_before_the_number() -> None:
    schema = iceberg_schema("inf double, d double")
    assert parse_predicate("inf < 5", schema) == LessThan("inf", 5.0)
    assert parse_predicate("inf = inf or d > infinity", schema) == Or(EqualTo("inf", inf), GreaterThan("d", inf))
    assert parse_predicate("INF < d", schema) == GreaterThan("d", inf)


def test_a_type_that_pyiceberg_cannot_compare_is_named() -> None:
    with pytest.raises(UnsupportedFeatureError, match="timestamp_ns"):
        parse_predicate("ns = '2024-01-01'", SCHEMA)
    assert bound(parse_predicate("ns is null", SCHEMA))


@pytest.mark.parametrize(
    "text",
    [
        "i = 5",
        "i != 5 and i <> 6",
        "i < 5 or i <= 5 or i > 5 or i >= 5",
        "5 < i and 5 <= i and 5 > i and 5 >= i and 5 = i and 5 != i",
        "i in (1, 2, 3)",
        "i not in (1, 2, 3)",
        "i is null or i is not null",
        "f is nan or d is not nan",
        "s like 'a%'",
        "s not like 'a%'",
        "s like 'a\\%'",
        "i between 1 and 3 and i < 2",
        "true",
        "false",
        "not i = 1",
        "not (i = 1 or l = 2) and d = 1.5",
        "i = 1 or i = 2 and l = 3",
        "NOT i = 1 AND l = 2 OR bo = true",
        "st.x = 4",
        "bo = true",
        "i=1 and l=2 and d>3.5 and s='x' or i=5 or i=6",
    ],
)
def test_the_tree_is_the_one_of_pyiceberg(text: str) -> None:
    assert bound(parse_predicate(text, SCHEMA)) == bound(pyiceberg_parse(text))


def test_constants_and_membership() -> None:
    assert parse_predicate("true", SCHEMA) is AlwaysTrue()
    assert parse_predicate("not true or false", SCHEMA) is AlwaysFalse()
    assert parse_predicate("i not between 1 and 2", SCHEMA) == parse_predicate("i < 1 or i > 2", SCHEMA)


def test_case_is_as_asked_and_names_come_out_as_the_schema_has_them() -> None:
    assert parse_predicate("ST.X = 3", SCHEMA, case_sensitive=False) == EqualTo("st.x", 3)
    with pytest.raises(UsageError):
        parse_predicate("ST.X = 3", SCHEMA)


def test_a_long_chain_does_not_nest() -> None:
    text = " or ".join(f"i = {n}" for n in range(3_000))
    assert isinstance(bound(parse_predicate(text, SCHEMA)), Or)


def test_expressions_are_normalised() -> None:
    day = dt.date(2024, 1, 1)
    cases: list[tuple[BooleanExpression, object]] = [
        (EqualTo("dec", 1.5), Decimal("1.50")),
        (EqualTo("dec", Decimal("1.5")), Decimal("1.50")),
        (EqualTo("dec", 3), Decimal("3.00")),
        (EqualTo("i", Decimal("5.0")), 5),
        (EqualTo("l", 5.0), 5),
        (EqualTo("d", 5), 5.0),
        (EqualTo("d", Decimal("0.1")), 0.1),
        (EqualTo("f", 0.1), 0.1),
        (EqualTo("day", day), 19723),
        (EqualTo("day", "2024-01-01"), 19723),
        (EqualTo("day", dt.datetime(2024, 1, 1)), 19723),
        (EqualTo("day", 19723), 19723),
        (EqualTo("ts", day), 19723 * 86_400_000_000),
        (EqualTo("ts", "2024-01-01"), 19723 * 86_400_000_000),
        (EqualTo("tz", dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)), 19723 * 86_400_000_000),
        (
            EqualTo("u", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
            UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes,
        ),
        (EqualTo("fx", b"ab"), b"ab"),
        (EqualTo("b", b"ab"), b"ab"),
        (EqualTo("bo", True), True),
        (EqualTo("t", dt.time(12, 30)), 45_000_000_000),
    ]
    for expression, value in cases:
        found = bound(normalise(expression, SCHEMA)).literal.value
        assert (type(found), found) == (type(value), value), expression


@pytest.mark.parametrize(
    "expression",
    [
        EqualTo("i", 1.5),
        EqualTo("i", Decimal("1.5")),
        EqualTo("i", 2**40),
        EqualTo("dec", Decimal("1.505")),
        EqualTo("dec", 1.505),
        NotEqualTo("i", 1.5),
        In("i", [1, 2**40]),
        NotIn("dec", [Decimal("1.505"), Decimal("1.00")]),
        Not(GreaterThan("i", 1.5)),
        And(EqualTo("i", 1), Or(EqualTo("l", 1), LessThan("i", 2**31))),
        EqualTo("day", dt.datetime(2024, 1, 1, 12)),
        EqualTo("day", 2**31),
        EqualTo("s", 5),
        EqualTo("bo", 1),
        EqualTo("fx", b"abc"),
        EqualTo("u", b"abc"),
        EqualTo("tz", dt.date(2024, 1, 1)),
        StartsWith("i", "5"),
        NotStartsWith("b", "5"),
        EqualTo("nope", 1),
        bind(SCHEMA, EqualTo("i", 1), True),
    ],
)
def test_expressions_that_would_be_rounded_are_refused(expression: BooleanExpression) -> None:
    with pytest.raises(UsageError):
        normalise(expression, SCHEMA)


def test_other_kinds_of_expressions_pass() -> None:
    for expression in (IsNull("st"), IsNaN("f"), StartsWith("s", "a"), NotStartsWith("s", "a"), AlwaysTrue()):
        assert normalise(expression, SCHEMA) == expression
        assert normalise(~expression, SCHEMA) == ~expression
    with pytest.raises(UsageError, match="text or a pyiceberg expression"):
        as_expression(5, SCHEMA)  # type: ignore[arg-type]


def test_deep_expressions_are_refused_in_one_sentence() -> None:
    expression: BooleanExpression = EqualTo("i", 0)
    for n in range(3000):
        expression = And(expression, NotEqualTo("i", n))
    with pytest.raises(UsageError, match="nested too deeply"):
        normalise(expression, SCHEMA)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="isdl.tx01 9-'\"()<>=!,%andortfue_\\\n", max_size=30))
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(SidecarError):
        bound(parse_predicate(text, SCHEMA))


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**40), 2**40), st.integers(0, 3))
def test_an_int_column_takes_exactly_the_integers_of_32_bits(value: int, zeros: int) -> None:
    text = f"{value}.{'0' * zeros}" if zeros else str(value)
    if -(2**31) <= value < 2**31:
        assert bound(parse_predicate(f"i = {text}", SCHEMA)).literal.value == value
        assert bound(normalise(EqualTo("i", value), SCHEMA)).literal.value == value
    else:
        with pytest.raises(UsageError):
            parse_predicate(f"i = {text}", SCHEMA)
