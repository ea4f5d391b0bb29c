"""Parses predicates that are given as text.

The language is pyiceberg's own, with additional literals for infinity and bytes::

    expression := conjunction (OR conjunction)*
    conjunction := negation (AND negation)*
    negation := NOT negation | "(" expression ")" | TRUE | FALSE | predicate
    predicate := column comparison literal | literal comparison column
               | column [NOT] IN "(" literal ("," literal)* ")"
               | column [NOT] BETWEEN literal AND literal
               | column [NOT] LIKE string
               | column IS [NOT] NULL | column IS [NOT] NAN
    comparison := "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">="
    column := name ("." name)*            name := letters, digits, "_" | "\\"" anything "\\""
    literal := number | ["+" | "-"] INF | 0x and hexadecimal digits | string in single quotes | TRUE | FALSE

INF and INFINITY without a sign are literals if a column is not possible at that point, or if no column has that name.
The text of a literal is passed on unchanged, with its column, so that nothing is rounded. What a new predicate needs is
in :mod:`sidecar.iceberg.predicates.conditions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    Or,
)
from pyiceberg.expressions.literals import Literal
from pyiceberg.schema import Schema

from sidecar.errors import UsageError
from sidecar.iceberg.predicates.comparisons import comparison, membership
from sidecar.iceberg.predicates.literals import PredicateColumn, find_column, literal_of_text, prefix_literal
from sidecar.iceberg.predicates.unbound import starts_with

MAX_DEPTH = 100
"""Limit of nested parentheses and NOTs; chains of AND and OR may have any length."""

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<bytes>0[xX][0-9a-fA-F]*(?![\w.]))
    | (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<infinity>[+-](?i:inf(?:inity)?)\b)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<symbol><=|>=|==|!=|<>|[=<>(),.])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_LITERALS = frozenset({"string", "number", "bytes", "infinity"})
_KEYWORDS = frozenset({"and", "or", "not", "is", "in", "null", "nan", "like", "between", "true", "false"})
_COMPARISONS: dict[str, Callable[..., BooleanExpression]] = {
    "=": EqualTo,
    "==": EqualTo,
    "!=": NotEqualTo,
    "<>": NotEqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
_UNARY: dict[str, Callable[..., BooleanExpression]] = {"null": IsNull, "nan": IsNaN}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WILDCARD = re.compile(r"\\(?P<escaped>[%_\\])|(?P<wild>[%_])")


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def keyword(self) -> str | None:
        """The keyword in lower case, or the text of a symbol; ``None`` for other tokens."""
        if self.kind == "symbol":
            return self.text
        word = self.text.lower()
        return word if self.kind == "word" and word in _KEYWORDS else None

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)

    @property
    def is_literal(self) -> bool:
        return self.kind in _LITERALS or self.keyword in ("true", "false")

    @property
    def is_infinity(self) -> bool:
        """Whether this is INF or INFINITY without a sign, which may also be the name of a column."""
        return self.kind == "word" and self.text.lower() in ("inf", "infinity")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while not tokens or tokens[-1].kind != "end":
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            rest = text[position:].lstrip()
            raise _syntax("the predicate cannot be read", len(text) - len(rest), repr(rest[:20]), hint=_QUOTE_HINT)
        kind = match.lastgroup
        tokens.append(_Token(kind, match.group(kind), match.start(kind)))
        position = match.end()
    return tokens


_QUOTE_HINT = "Put strings, dates and times in single quotes, unusual column names in double quotes."


def _syntax(what: str, position: int, found: str, expected: str | None = None, hint: str | None = None) -> UsageError:
    return UsageError(f"{what} at character {position + 1}", expected=expected, found=found, hint=hint)


class Parser:
    """A recursive descent parser; each rule of the grammar in the module's docstring is a method."""

    def __init__(self, text: str, schema: Schema, case_sensitive: bool) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._schema = schema
        self._case_sensitive = case_sensitive

    def parse(self) -> BooleanExpression:
        """Parse the whole text. Raises :class:`UsageError` with the position of a syntax error."""
        expression = self._expression()
        if self._next.kind != "end":
            raise self._unexpected("AND, OR or the end")
        return expression

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _skip(self, *keywords: str) -> bool:
        """Take the keywords and return ``True`` if all of them come next, else take nothing."""
        ahead = self._tokens[self._at : self._at + len(keywords)]
        if [token.keyword for token in ahead] != list(keywords):
            return False
        self._at += len(keywords)
        return True

    def _expect(self, keyword: str) -> None:
        if not self._skip(keyword):
            raise self._unexpected(keyword.upper())

    def _unexpected(self, expected: str) -> UsageError:
        hint = _QUOTE_HINT if self._next.kind in ("word", "quoted", "number") else None
        return _syntax("the predicate cannot be read", self._next.position, self._next.shown, expected, hint)

    def _expression(self) -> BooleanExpression:
        terms = [self._conjunction()]
        while self._skip("or"):
            terms.append(self._conjunction())
        return terms[0] if len(terms) == 1 else Or(*terms)

    def _conjunction(self) -> BooleanExpression:
        terms = [self._negation()]
        while self._skip("and"):
            terms.append(self._negation())
        return terms[0] if len(terms) == 1 else And(*terms)

    def _negation(self) -> BooleanExpression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _syntax("the predicate is nested too deeply", self._next.position, f"more than {MAX_DEPTH} levels")
        try:
            return self._unit()
        finally:
            self._depth -= 1

    def _unit(self) -> BooleanExpression:
        if self._skip("not"):
            return Not(self._negation())
        if self._skip("("):
            inner = self._expression()
            self._expect(")")
            return inner
        if self._next.is_literal or self._is_infinity_first():
            return self._literal_first()
        return self._predicate()

    def _is_infinity_first(self) -> bool:
        """Return whether infinity comes next as the left side of a comparison, and is not the name of a column."""
        if not self._next.is_infinity or self._tokens[self._at + 1].keyword not in _COMPARISONS:
            return False
        name, names = self._next.text, self._schema.column_names
        return name not in names if self._case_sensitive else name.lower() not in map(str.lower, names)

    def _literal_first(self) -> BooleanExpression:
        """Parse a predicate that starts with a literal: ``5 < x``, or TRUE or FALSE alone."""
        literal = self._take()
        if self._next.keyword not in _COMPARISONS:
            if literal.keyword == "true":
                return AlwaysTrue()
            if literal.keyword == "false":
                return AlwaysFalse()
            raise self._unexpected("a comparison")
        operator = self._take().text
        column = self._column()
        kind = _COMPARISONS[_MIRRORED.get(operator, operator)]
        return comparison(kind, column, _value(literal, column))

    def _predicate(self) -> BooleanExpression:
        column = self._column()
        if self._next.keyword in _COMPARISONS:
            operator = self._take().text
            return comparison(_COMPARISONS[operator], column, self._literal(column))
        if self._skip("is"):
            return self._null_or_nan(column)
        negated = self._skip("not")
        expression = self._membership(column)
        return ~expression if negated else expression

    def _null_or_nan(self, column: PredicateColumn) -> BooleanExpression:
        negated = self._skip("not")
        kind = "null" if self._skip("null") else "nan" if self._skip("nan") else None
        if kind is None:
            raise self._unexpected("NULL or NAN")
        expression = _UNARY[kind](column.name)
        return ~expression if negated else expression

    def _membership(self, column: PredicateColumn) -> BooleanExpression:
        if self._skip("in"):
            return membership(In, column, self._list(column))
        if self._skip("between"):
            lower = self._literal(column)
            self._expect("and")
            upper = self._literal(column)
            return And(comparison(GreaterThanOrEqual, column, lower), comparison(LessThanOrEqual, column, upper))
        if self._skip("like"):
            return self._like(column)
        raise self._unexpected("a comparison, IN, BETWEEN, LIKE or IS")

    def _list(self, column: PredicateColumn) -> list[Literal[Any]]:
        self._expect("(")
        values = [self._literal(column)]
        while self._skip(","):
            values.append(self._literal(column))
        self._expect(")")
        return values

    def _like(self, column: PredicateColumn) -> BooleanExpression:
        if self._next.kind != "string":
            raise self._unexpected("a string")
        token = self._take()
        text, is_prefix = _pattern(_unquote(token.text), token)
        literal = prefix_literal(text, column)
        return starts_with(column.name, literal) if is_prefix else _COMPARISONS["="](column.name, literal)

    def _literal(self, column: PredicateColumn) -> Literal[Any]:
        if not self._next.is_literal and not self._next.is_infinity:
            if self._next.keyword in ("null", "nan"):
                raise self._unexpected("a literal (test for NULL and NAN with IS)")
            raise self._unexpected("a literal")
        return _value(self._take(), column)

    def _column(self) -> PredicateColumn:
        names = [self._name()]
        while self._skip("."):
            names.append(self._name())
        if self._next.text == "(":
            raise UsageError(
                f"a predicate cannot call a function: {names[-1]}(...)",
                hint="It compares columns with literals, as in mail = 'a@example.com' AND id > 5.",
            )
        return find_column(self._schema, ".".join(names), self._case_sensitive)

    def _name(self) -> str:
        token = self._next
        if token.keyword is not None or token.kind not in ("word", "quoted"):
            raise self._unexpected("a column")
        self._take()
        return _unquote(token.text) if token.kind == "quoted" else token.text


def _unquote(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0])


def _value(token: _Token, column: PredicateColumn) -> Literal[Any]:
    if token.kind == "string":
        return literal_of_text(_unquote(token.text), column, quoted=True)
    return literal_of_text(token.text, column, quoted=False)


def _pattern(text: str, token: _Token) -> tuple[str, bool]:
    """Return the plain text of a LIKE pattern, and whether it ends with an unescaped ``%``."""
    wild = [match for match in _WILDCARD.finditer(text) if match["wild"]]
    if any(match["wild"] == "_" or match.end() != len(text) for match in wild):
        raise _syntax(
            "LIKE supports one wildcard only, a % at the end of the pattern;",
            token.position,
            repr(text),
            hint=r"Write \% and \_ for the characters themselves.",
        )
    plain = _WILDCARD.sub(lambda match: match["escaped"] or match[0], text)
    return (plain[:-1] if wild else plain), bool(wild)
