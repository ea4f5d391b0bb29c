"""The sections of a page about one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element

from sidecar.reports.advising.report import Advice
from sidecar.reports.advising.verdicts import amount
from sidecar.reports.page.elements import PageContent, element, table_of
from sidecar.reports.page.facts import ColumnFill, ExampleLookup, SnapshotInfo, TableFacts, TableOnPage
from sidecar.reports.page.pictures import bars, fill_map, funnel, history
from sidecar.reports.page.wording import count, moment, quantity, rate, share, size, span
from sidecar.reports.status.results import TableStatus

MOST_BARS = 8
"""More bars than this are drawn in two pictures beside each other."""


def overview(tables: list[TableOnPage]) -> Element:
    """A line for each table, with a link to its section."""
    rows: list[list[PageContent]] = []
    for at, one in enumerate(tables):
        name = element("a", one.name, href=f"#table-{at}")
        if one.facts is None:
            rows.append([name, "–", "–", "–", element("span", str(one.error), class_="bad")])
            continue
        status = one.facts.status
        steps = "; ".join(step.why for step in status.to_do) or "nothing to do"
        covered = share(status.share_covered)
        rows.append([name, count(status.files.live), covered, count(status.waiting.files), steps])
    return table_of(["table", "files", "covered", "waiting", "what to do"], rows, {1, 2, 3})


def section(at: int, one: TableOnPage) -> Element:
    """All that the page says about a table."""
    heading = element("h2", one.name, id=f"table-{at}")
    if one.facts is None:
        return element("section", heading, element("p", str(one.error), class_="bad"))
    return element("section", heading, *_parts(one.facts))


def _parts(facts: TableFacts) -> Iterator[Element]:
    status = facts.status
    if status.snapshot_id is None:
        yield element("p", "The table has no snapshot yet.")
        return
    yield from _to_do(status)
    yield from _coverage(status)
    yield from _sizes(status)
    if facts.lookups:
        yield element("h3", "Example lookups")
        yield element("p", "How many data files are left after each step. No value is shown.", class_="dim")
        yield _beside(_example(lookup) for lookup in facts.lookups)
    yield from _costs(status)
    yield from _fill(facts.fill)
    if facts.distinct:
        yield element("h3", "Distinct values")
        yield table_of(
            ["column", "estimate", "from", "to"],
            [
                [
                    one.column,
                    count(one.estimate),
                    "unknown" if one.upper_bound else count(one.low),
                    "unknown" if one.lower_bound else count(one.high),
                ]
                for one in facts.distinct
            ],
            {1, 2, 3},
        )
        if any(one.upper_bound for one in facts.distinct):
            text = "Where the lower end is unknown, the count still has values of rows that were removed."
            yield element("p", text, class_="dim")
        if any(one.lower_bound for one in facts.distinct):
            text = "Where the upper end is unknown, some data files are not counted yet."
            yield element("p", text, class_="dim")
    yield from _history(facts.snapshots, status)
    if facts.advice is not None:
        yield from _advice(facts.advice)
    yield from _warnings([*status.warnings, *facts.warnings])


def _example(lookup: ExampleLookup) -> Element:
    reads = f"{quantity(lookup.index_reads, 'read')} of the sidecar ({size(lookup.index_bytes)})"
    caption = f"{lookup.column}, {lookup.of}: {reads}, then {size(lookup.bytes_kept)} of data files"
    return _figure(funnel(lookup), caption)


def _to_do(status: TableStatus) -> Iterator[Element]:
    if status.to_do:
        lines = (element("li", f"{step.why}: ", element("code", step.command)) for step in status.to_do)
        yield element("ul", *lines)
    else:
        yield element("p", "Nothing to do.")


def _coverage(status: TableStatus) -> Iterator[Element]:
    yield element("h3", "Coverage")
    indexes = [(column, kind, one) for column, kinds in status.covered.items() for kind, one in kinds.items()]
    if not indexes:
        yield element("p", "There is no sidecar.")
        return
    lines = [(column, kind, one.share, share(one.share)) for column, kind, one in indexes]
    caption = "Rows in files that have the index, by column and kind"
    half = -(-len(lines) // 2) if len(lines) > MOST_BARS else len(lines)
    parts = [lines[:half], lines[half:]] if half < len(lines) else [lines]
    yield _beside(_figure(bars("rows that have an index", part, 1.0), caption) for part in parts)
    waiting = status.waiting
    if waiting.since is not None:
        since = f"{'before ' if waiting.or_longer else ''}{moment(waiting.since)}"
        wait = "waits" if waiting.files == 1 else "wait"
        text = f"{quantity(waiting.files, 'file')} with {quantity(waiting.rows, 'row')} {wait} since {since}"
        yield element("p", f"{text}, for {span(waiting.seconds)}.")
    if status.losable:
        names = ", ".join(one.ref for one in status.losable)
        yield element("p", f"If old snapshots expired now, {names} would lose the sidecar.")


def _sizes(status: TableStatus) -> Iterator[Element]:
    used, loose = status.sidecar, status.unreferenced
    files = [("data files", status.data_bytes)]
    if used is not None:
        files.append(("the sidecar", used.file_size))
    files.append(("all registered", status.registered.bytes))
    if loose.bytes is not None:
        files.append(("not referenced", loose.bytes))
    lines = [(name, "", float(number), size(number)) for name, number in files]
    parts = [
        (column, kind, float(one.bytes), size(one.bytes))
        for column, kinds in status.coverage.items()
        for kind, one in kinds.items()
        if one.bytes is not None
    ]
    yield element("h3", "Sizes")
    of_data = "" if status.size_share is None else f"The sidecar has {rate(status.size_share)} of the size of the data"
    figures = [_figure(bars("sizes", lines), of_data)]
    figures += [_figure(bars("sizes of filters", parts), "Filters in the sidecar, by column")] if parts else []
    yield _beside(figures)
    if loose.unknown_because is not None:
        yield element("p", f"Files that nothing references are not known: {loose.unknown_because}.")


def _costs(status: TableStatus) -> Iterator[Element]:
    if not status.lookups:
        return
    yield element("h3", "What a lookup reads of the sidecar")
    rows: list[list[PageContent]] = [
        [column, count(one.segments), count(one.reads), size(one.bytes_read), rate(one.rate)]
        for column, one in status.lookups.items()
    ]
    yield table_of(["column", "segments", "reads", "bytes", "false positives, by bits"], rows, {1, 2, 3, 4})


def _fill(columns: list[ColumnFill]) -> Iterator[Element]:
    if columns:
        yield element("h3", "Fill of the filters by file")
        yield element(
            "p",
            "A cell for each file, or for neighbours, the newest last; an empty one has no filter. A full filter "
            "answers no lookup; one that works has at most about half of its bits set.",
            class_="dim",
        )
        yield _beside(_figure(fill_map(one), _caption(one)) for one in columns)


def _caption(fill: ColumnFill) -> str:
    some = "" if fill.filters_read == fill.filters else f"{count(fill.filters_read)} of "
    return f"{fill.column}: {some}{quantity(fill.filters, 'filter')} read"


def _history(snapshots: list[SnapshotInfo], status: TableStatus) -> Iterator[Element]:
    yield element("h3", "History")
    caption = "Data files by snapshot, the newest on the right; a dot where statistics are registered"
    yield _figure(history(snapshots), caption)
    if snapshots:
        first, last = moment(snapshots[0].committed), moment(snapshots[-1].committed)
        yield element("p", first if first == last else f"{first} to {last}", class_="dim")
    if status.runs:
        rows: list[list[PageContent]] = [
            [moment(run.at), run.what, count(run.indexed), count(run.carried), count(run.left), span(run.seconds)]
            for run in reversed(status.runs)
        ]
        yield table_of(["run", "", "indexed", "carried", "left", "time"], rows, {2, 3, 4, 5})


def _advice(advice: Advice) -> Iterator[Element]:
    yield element("h3", "Advice")
    rows: list[list[PageContent]] = []
    for one in advice.columns:
        found = one.evidence
        lookup = "–"
        if found is not None:
            lookup = f"{amount(found.existing.by_bounds)} → {amount(found.existing.with_filters)}"
        rows.append([one.name, one.filters, lookup, one.reason])
    headings = ["column", "filters", "files of a lookup: by bounds → with filters", "why"]
    yield table_of(headings, rows)
    for command in advice.commands:
        yield element("pre", command)
    if advice.alter_table:
        yield element("pre", advice.alter_table)
    yield from _warnings(advice.warnings)


def _warnings(texts: list[str]) -> Iterator[Element]:
    if texts:
        yield element("ul", *(element("li", text) for text in dict.fromkeys(texts)), class_="bad")


def _beside(figures: Iterable[Element]) -> Element:
    """Pictures beside each other, as many as the window has room for."""
    return element("div", *figures, class_="pictures")


def _figure(picture: Element, caption: str) -> Element:
    return element("figure", picture, *([element("figcaption", caption)] if caption else []))
