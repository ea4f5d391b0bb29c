"""Typed results: attributes for programs, plain data for JSON, and a short form for people.

A result is a frozen dataclass that inherits from :class:`Result`. The names of its attributes are the keys of its JSON.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

LONGEST_TEXT = 80
"""Characters of a text that the short form of a result shows."""

SHOWN_RECORDS = 20
"""Records that notebooks show."""


class PlainResult(Protocol):
    """A result of any kind; its plain data is what JSON shows."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        ...


class Summarized:
    """An object with a short ``repr``, in which collections are lengths, tables for notebooks, and a DataFrame."""

    __slots__ = ()

    records_in: ClassVar[str | None] = None
    """The attribute with the results that are rows of the DataFrame; ``None`` if the object is one row."""

    def summary(self) -> Mapping[str, object]:
        """Return the facts that the short form shows, by name. ``None`` is not shown."""
        return {name: getattr(self, name) for name in _names(type(self))}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in self._facts())})"

    def _repr_html_(self) -> str:
        """Return the facts, then the first records, as HTML tables, which notebooks show. All texts are escaped."""
        known = ((name, value) for name, value in self.summary().items() if value is not None)
        facts = _html_table(type(self).__name__, (), ((name, _cell(name, value)) for name, value in known))
        records = self.records() if self.records_in else []
        names = list(dict.fromkeys(name for record in records for name in record))
        cells = ([_cell(name, record.get(name)) for name in names] for record in records[:SHOWN_RECORDS])
        return facts + _html_table(f"{self.records_in}: {len(records)}", names, cells) if names else facts

    def records(self) -> Sequence[Mapping[str, Any]]:
        """Return the rows of the DataFrame as plain data."""
        parts = getattr(self, self.records_in) if self.records_in else [self]
        return [plain_data(part if isinstance(part, Result) else dict(part.summary())) for part in parts]

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame, which needs pandas: a row for each part, else one row. Columns in parts are ``a.b``."""
        import pandas as pd

        return pd.json_normalize([dict(record) for record in self.records()])

    def _facts(self) -> Iterable[tuple[str, str]]:
        return ((name, _brief(value)) for name, value in self.summary().items() if value is not None)


class Result(Summarized):
    """What a function returns. ``to_dict`` has the same facts as plain data."""

    __slots__ = ()

    omitted_if_none: ClassVar[tuple[str, ...]] = ()
    """Attributes that are not in the plain data if they are ``None``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON."""
        values = ((name, getattr(self, name)) for name in _names(type(self)))
        return {
            name: plain_data(value) for name, value in values if value is not None or name not in self.omitted_if_none
        }


def plain_data(value: Any) -> Any:
    """Return ``value`` with each result and error in it as a dict."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, list):
        return [plain_data(item) for item in value]
    if isinstance(value, dict):
        return {key: plain_data(item) for key, item in value.items()}
    return value


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class ProbedRowGroup(Result):
    """The answer of a column's filter in one row group for one value."""

    omitted_if_none = ("file", "stripe")

    file: str | None = None
    """The data file; ``None`` in the answer for a single file, which names it once."""
    stripe: int | None = None
    """The stripe of an ORC file; ``None`` in Parquet files and tables."""
    row_group: int | None
    """The row group, in an ORC file counted from the start of its stripe. ``None`` if it is not known."""
    might_contain: bool | None
    """Whether the row group may have the value; ``None`` if nothing certain is known."""
    reason: str
    """Why nothing certain is known, or how the answer was found; it may be empty."""


class FileProbe(NamedTuple):
    """The answers of a column's filters in one file."""

    units: list[ProbedRowGroup]
    """The answer for each row group. In the answers of a sidecar each names its data file."""
    fields: list[int] | None = None
    """The field ids that a sidecar has for the column; ``None`` for a data file."""
    types: list[str] | None = None
    """The Iceberg types as which the value was read for a sidecar; ``None`` for a data file."""
    warnings: list[str] | None = None
    """What is wrong with a sidecar, in words; ``None`` for a data file."""


def _html_table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table. Without headings, the first cell of a row is its heading."""
    cell, head = '<td style="text-align:left">{}</td>', '<th style="text-align:left">{}</th>'
    kinds = (cell,) if headings else (head, cell)
    lines = ["".join(head.format(html.escape(name)) for name in headings)] if headings else []
    for row in rows:
        texts = enumerate(map(html.escape, row))
        lines.append("".join(kinds[min(place, len(kinds) - 1)].format(text) for place, text in texts))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><caption>{html.escape(caption)}</caption>{body}</table>"


def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _cell(name: str, value: object) -> str:
    """Return a value as a notebook shows it: what is in a short collection, and long numbers so that they are read."""
    if isinstance(value, bool) or value is None:
        return "" if value is None else "yes" if value else "no"
    if isinstance(value, str):
        return _brief(value)[1:-1]
    if isinstance(value, int):
        return str(value) if name.endswith("id") else f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, Summarized):
        return _cell(name, dict(value.summary()))
    if isinstance(value, Mapping):
        parts = [f"{key}: {text}" for key, one in value.items() if (text := _cell(str(key), one))]
    elif isinstance(value, list | tuple) and not any(isinstance(one, Summarized) for one in value):
        parts = [_cell(name, one) for one in value]
    else:
        return _brief(value)
    text = ", ".join(parts)
    return text if len(text) <= LONGEST_TEXT else _brief(value)


def _brief(value: object) -> str:
    if isinstance(value, str):
        text = value if len(value) <= LONGEST_TEXT else f"…{value[-LONGEST_TEXT:]}"
        return repr(text)
    if isinstance(value, list | tuple | Mapping | Set):
        return (
            ("{}" if isinstance(value, Mapping) else "[]")
            if not value
            else f"<{len(value)} {'items' if len(value) > 1 else 'item'}>"
        )
    text = repr(value)
    return text if len(text) <= 2 * LONGEST_TEXT else f"{type(value).__name__}(…)"
