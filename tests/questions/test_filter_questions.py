"""What filters are asked, and which units are left: never a false negative, and asked no more than needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import expression_evaluator
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, DoubleType, NestedField, StructType

from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.planning.file_question import FileQuestion
from sidecar.questions.conditions import MAX_VALUES, AllOf, AnyOf, Condition, HoldsAny
from sidecar.questions.filter_questions import FilterQuestion, looked_up
from sidecar.questions.narrowing import Units, matching_units
from tests.tables import iceberg_schema

SCHEMA = iceberg_schema(
    "a long, b long, c long",
    NestedField(4, "st", StructType(NestedField(5, "x", DoubleType()))),
    NestedField(6, "bo", BooleanType()),
)


def asked(text: str) -> FilterQuestion:
    return FileQuestion(parse_predicate(text, SCHEMA), SCHEMA).for_filters


def shown(question: Condition | None) -> str:
    if question is None:
        return "-"
    if isinstance(question, HoldsAny):
        return f"{question.column.name}~{','.join(map(str, question.values))}"
    assert isinstance(question, AllOf | AnyOf)
    name = "and" if isinstance(question, AllOf) else "or"
    return f"{name}({' '.join(sorted(map(shown, question.parts)))})"


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("a = 1", "a~1"),
        ("not a != 1", "a~1"),
        ("a in (2, 1)", "a~1,2"),
        ("not a not in (2, 1)", "a~1,2"),
        ("st.x = 1.5", "st.x~1.5"),
        ("a = 1 and b > 2", "a~1"),
        ("a = 1 and b = 2", "and(a~1 b~2)"),
        ("a = 1 or b = 2", "or(a~1 b~2)"),
        ("a = 1 or a = 3 or b = 2 or a in (4, 5)", "or(a~1,3,4,5 b~2)"),
        ("a = 1 or a = 2", "a~1,2"),
        ("not (a != 1 or b != 2)", "and(a~1 b~2)"),
        ("not (a != 1 and b != 2)", "or(a~1 b~2)"),
        ("(a = 1 or b = 2) and (b = 3 or c < 4)", "or(a~1 b~2)"),
        ("(a = 1 and b > 5) or (c = 2 and b < 5)", "or(a~1 c~2)"),
        ("false", "or()"),
        ("a = 1 and false", "or()"),
        ("a = 1 or b > 2", "-"),
        ("a != 1", "-"),
        ("a not in (1, 2)", "-"),
        ("a < 1 or a >= 7", "-"),
        ("a is null", "-"),
        ("a is not null", "-"),
        ("st.x is nan", "-"),
        ("bo = true", "-"),
        ("bo = true and a = 1", "a~1"),
        ("true", "-"),
    ],
)
def test_what_a_predicate_asks(text: str, question: str) -> None:
    assert shown(asked(text).condition) == question


def test_long_lists_are_not_asked_and_said_so() -> None:
    fits = ", ".join(map(str, range(MAX_VALUES)))
    assert len(next(looked_up(asked(f"a in ({fits})").condition)).values) == MAX_VALUES  # type: ignore[arg-type]
    too_many = asked(f"a in ({fits}, 1000)")
    assert too_many.condition is None
    assert str(MAX_VALUES) in too_many.notes[0]
    chain = " or ".join(f"a = {n}" for n in range(MAX_VALUES + 1))
    assert asked(chain).condition is None
    assert shown(asked(f"({chain}) and b = 2").condition) == "b~2"


class Index:
    """Exact sets instead of filters; unit ``n`` of column ``c`` holds ``units[n][c]`` or is not indexed."""

    def __init__(self, units: list[dict[int, set[Any] | None]]) -> None:
        self.units = units
        self.calls = 0

    def ask(self, leaf: HoldsAny) -> Units:
        self.calls += 1
        held = (unit[leaf.column.index] for unit in self.units)
        return np.array([values is None or bool(values & {*leaf.values}) for values in held], np.bool_)

    def answer(self, text: str) -> list[bool]:
        question = asked(text).condition
        assert question is not None
        return matching_units(question, self.ask, len(self.units)).tolist()


def test_answers_compose_and_unknown_keeps() -> None:
    def index() -> Index:
        return Index([{1: {1}, 2: {2}, 3: None}, {1: {1}, 2: {9}, 3: {9}}, {1: None, 2: {2}, 3: {3}}])

    assert index().answer("a = 1") == [True, True, True]
    assert index().answer("a = 5") == [False, False, True]
    assert index().answer("a = 1 and b = 2") == [True, False, True]
    assert index().answer("a = 5 or b = 9") == [False, True, True]
    assert index().answer("a = 5 and c = 7") == [False, False, False]
    assert index().answer("c = 7 or c = 3") == [True, False, True]
    assert index().answer("false") == [False, False, False]


def test_no_more_is_asked_once_the_answer_is_certain() -> None:
    index = Index([{1: {1}, 2: {2}, 3: {3}}])
    index.answer("a = 9 and b in (1, 2, 3)")
    assert index.calls == 1
    index.calls = 0
    index.answer("a = 1 or b = 1 or c = 1")
    assert index.calls == 1


VALUE = st.integers(0, 4)
ROW = st.tuples(st.none() | VALUE, st.none() | VALUE, st.none() | VALUE)


@st.composite
def predicates(draw: st.DrawFn, depth: int = 3) -> str:
    kind = draw(st.sampled_from(["leaf", "leaf", "and", "or", "not"] if depth else ["leaf"]))
    if kind == "not":
        return f"not ({draw(predicates(depth - 1))})"
    if kind in ("and", "or"):
        return f"({draw(predicates(depth - 1))}) {kind} ({draw(predicates(depth - 1))})"
    column, value, other = draw(st.sampled_from("abc")), draw(VALUE), draw(VALUE)
    form = draw(st.sampled_from(["{c} = {v}", "{c} != {v}", "{c} < {v}", "{c} in ({v}, {o})",
                                 "{c} not in ({v}, {o})", "{c} is null", "{c} is not null"]))  # fmt: skip
    return form.format(c=column, v=value, o=other)


@settings(max_examples=400, deadline=None)
@given(
    predicates(),
    st.lists(st.lists(ROW, max_size=4), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_never_a_false_negative(text: str, units: list[list[tuple[int | None, ...]]], random: Any) -> None:
    expression: BooleanExpression = parse_predicate(text, SCHEMA)
    question = FileQuestion(expression, SCHEMA).for_filters.condition
    if question is None:
        return
    index = Index(
        [
            {
                field_id: None if random.random() < 0.2 else {row[field_id - 1] for row in rows} - {None}
                for field_id in (1, 2, 3)
            }
            for rows in units
        ]
    )
    found = matching_units(question, index.ask, len(units))
    matches = expression_evaluator(SCHEMA, expression, True)
    for unit, rows in enumerate(units):
        if any(_safe(matches, row) for row in rows):
            assert found[unit], f"{text} matches a row of unit {unit}"


def _safe(matches: Any, row: tuple[int | None, ...]) -> bool:
    """pyiceberg's evaluator raises where it compares NULL; such a row is no match."""
    try:
        return bool(matches(Record(*row, None, None)))
    except TypeError:
        return False
