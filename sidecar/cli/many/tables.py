"""Runs a command for many tables, and shows what became of each in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import typer

from sidecar.cli import humanize
from sidecar.cli.many.targets import are_several_tables
from sidecar.cli.options import chosen_catalog, opened_table, storage_options
from sidecar.cli.output import announce_dry_run, error_text, escaped, output, table
from sidecar.cli.shell.choices import OutputFormat
from sidecar.errors import UsageError
from sidecar.results.base import PlainResult

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.iceberg.many_tables import TableOutcome


R = TypeVar("R", bound=PlainResult)
Cells: TypeAlias = "dict[str, str | int | float | None]"
"""The columns of one table's line."""

RESULT = "result"
NO_SNAPSHOT = "no snapshot yet"
ANY_TABLE = "TABLE"
"""The placeholder of a table's name in an error that several tables have."""
NAMED_TABLES = 3
"""Tables that a warning which more of them have names."""
LONGEST_CELL = 60
"""Characters of a result that is in its table's line; a longer one is below the lines."""


@dataclass(frozen=True)
class View(Generic[R]):
    """How the result of a command is shown: in its table's line, or drawn as a whole if there is one table."""

    cells: Callable[[R], Cells]
    failed: Callable[[R], bool]
    draw: Callable[[Console, R], None] | None = None
    """``None``: one table has a line too."""


@dataclass(frozen=True)
class TableLines(Generic[R]):
    """What became of each table, and how many are bad."""

    outcomes: Sequence[TableOutcome[R]]
    bad: int
    view: View[R]
    dry_run: bool

    def summary(self) -> dict[str, int]:
        """The numbers of tables, as JSON has them."""
        return {"tables": len(self.outcomes), "failed": self.bad}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        mode = {"dry_run": True} if self.dry_run else {}
        return {"tables": [_plain(one) for one in self.outcomes], "summary": self.summary(), **mode}


def show_tables(tables: Sequence[str], work: Callable[[Any], R], view: View[R], dry_run: bool = False) -> None:
    """Do ``work`` for tables and show its result: that of one table as a whole, of many (several, a glob) by line."""
    if view.draw is None or are_several_tables(tables):
        run_tables(tables, work, view, dry_run)
        return
    out, found = output(), work(opened_table(tables[0]))
    out.warn(_warnings(found))
    out.result(found, view.draw, failed=view.failed(found))


def run_tables(names: Sequence[str], work: Callable[[Any], R], view: View[R], dry_run: bool = False) -> None:
    """Do ``work`` for each table and print a summary.

    The exit code is 1 if a table had an error, or if a result failed, and 2 if the usage is wrong for all tables.
    ``dry_run`` says that nothing is written. Lines of JSON have the exit code of the table, and come when it is done.
    """
    from sidecar.iceberg.many_tables import each_table
    from sidecar.iceberg.table_names import name_of

    out = output()
    warned: list[tuple[str, str]] = []

    def work_by_name(opened: Any) -> R:
        with out.holding_warnings(name_of(opened), warned):
            return work(opened)

    storage = storage_options(out.choices.storage)
    outcomes: list[TableOutcome[R]] = []
    exits: list[int] = []
    try:
        for outcome in each_table(names, work_by_name, chosen_catalog(), None, **storage):
            outcomes.append(outcome)
            is_usage = isinstance(outcome.error, UsageError)
            exits.append(2 if is_usage else int(outcome.result is None or view.failed(outcome.result)))
            if outcome.result is not None:
                warned += ((outcome.table, text) for text in _warnings(outcome.result))
            if out.form is OutputFormat.jsonl:
                out.document_of_table(_plain(outcome), exits[-1])
    finally:
        warn_of_tables(warned)
    exit_code = 2 if set(exits) == {2} else int(any(exits))
    if out.form is OutputFormat.jsonl:
        raise typer.Exit(exit_code)
    out.result(TableLines(outcomes, sum(map(bool, exits)), view, dry_run), _draw, failed=exit_code)


def warn_of_tables(warned: Iterable[tuple[str, str]]) -> None:
    """Print the warnings of tables, each after its table; one that several tables have once, after some of them."""
    for names, text in _by_text(warned):
        few = ", ".join(names[:NAMED_TABLES])
        output().warn([f"{few if len(names) <= NAMED_TABLES else f'{len(names)} tables ({few}, ...)'}: {text}"])


def _by_text(texts: Iterable[tuple[str, str]]) -> Iterator[tuple[list[str], str]]:
    """Yield each text of tables with the names of all that have it, which are :data:`ANY_TABLE` in the text."""
    found: dict[str, dict[str, str]] = {}
    for name, text in texts:
        found.setdefault(text.replace(name, ANY_TABLE), {})[name] = text
    for shared, own in found.items():
        yield list(own), shared if len(own) > 1 else next(iter(own.values()))


def _warnings(found: PlainResult) -> Iterable[str]:
    """What the caller should know, if results of that kind say so."""
    warnings: Iterable[str] = getattr(found, "warnings", ())
    return warnings


def _plain(outcome: TableOutcome[R]) -> dict[str, Any]:
    if outcome.error is not None:
        return {"table": outcome.table, "error": outcome.error.to_dict()}
    found = {} if outcome.result is None else outcome.result.to_dict()
    return {**found, "table": outcome.table}


def _draw(to: Console, found: TableLines[R]) -> None:
    announce_dry_run(to, found.dry_run)
    draw_lines(to, [_line(one, found.view) for one in found.outcomes], found.summary())


def _line(one: TableOutcome[R], view: View[R]) -> Cells:
    if one.result is not None:
        return {"table": one.table, **view.cells(one.result)}
    if one.error is None:
        return {"table": one.table, RESULT: ""}
    return {"table": one.table, "error": error_text(one.error, "file", "column", "expected", "found", hint=True)}


def draw_lines(to: Console, lines: Sequence[Cells], counts: Mapping[str, int]) -> None:
    """Draw a line for each table, and how many tables there are. ``counts`` has ``tables`` first, then the bad ones."""
    names = dict.fromkeys(name for line in lines for name in line)
    shown = [name for name in names if name not in ("error", RESULT)]
    drawn = table(*shown, RESULT, right=[n for n, name in enumerate(shown) if name != "table"])
    long: list[tuple[str, str]] = []
    for line in lines:
        error = line.get("error")
        text, style = (str(line[RESULT]), "none") if error is None else (str(error), "red")
        if len(text) > LONGEST_CELL:  # a path in it would be folded
            long.append((str(line["table"]), text))
            text = "see below"
        drawn.add_row(*(_cell(name, line.get(name)) for name in shown), f"[{style}]{escaped(text)}[/]")
    to.print(drawn)
    for tables, text in _by_text(long):
        to.print(f"{', '.join(tables)}: {text}", markup=False, soft_wrap=True)
    (_, total), *bad = counts.items()
    others = "".join(f", [red]{humanize.count(count)} {name.replace('_', ' ')}[/]" for name, count in bad if count)
    to.print(f"{humanize.count(total)} {'table' if total == 1 else 'tables'}{others}")


def _cell(name: str, value: str | float | None) -> str:
    if value is None:
        return "–"
    if not isinstance(value, str) and name in _UNITS:
        return _UNITS[name](value)
    return humanize.count(value) if isinstance(value, int) else escaped(str(value))


_UNITS: dict[str, Callable[[float], str]] = {
    "sidecar": humanize.size,
    "to read": humanize.size,
    "size": humanize.size,
    "time": humanize.duration,
}
"""How numbers of bytes and seconds are drawn."""
