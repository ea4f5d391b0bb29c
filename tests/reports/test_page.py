"""``report``: one strict HTML page that refers to nothing and runs nothing; its facts are those of the functions."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar import errors
from sidecar.bundle.fill import read_fill
from sidecar.reports.page.collecting import collect_facts
from sidecar.reports.page.pictures import bars
from sidecar.reports.page.wording import moment, span
from tests.iceberg.encrypted_tables import bundle_keys
from tests.maintenance.cases import make, register_others, rows
from tests.object_store import open_store
from tests.reports.browser import NARROW, WIDE, needs_browser, shown

HOSTILE = "</script><script>alert(1)</script>&\"'\x1b[31m\u202e"
VOID = {"meta"}


class StrictPage(HTMLParser):
    """Checks that elements nest and close, and collects attributes, the JSON and the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.tags: list[str] = []
        self.data: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        assert len({name for name, _ in attrs}) == len(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        where = self.open[-1] if self.open else ""
        self.data[where] = self.data.get(where, "") + data


def checked(path: Path) -> tuple[StrictPage, Any]:
    """The parsed page and its JSON. It refers to nothing outside, and nothing in it runs."""
    text = path.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>\n")
    page = StrictPage(text)
    assert set(page.tags) <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "a", "div", "section", "script"),
        *("table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code", "pre", "span", "figure", "figcaption"),
        *("svg", "rect", "text", "circle"),
    }
    assert page.tags.count("script") == 1
    assert [(name, value) for tag, name, value in page.attributes if tag == "script"] == [
        ("type", "application/json"),
        ("id", "facts"),
    ]
    for _, name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "srcset", "style", "action", "data")
        assert "//" not in value
        if name == "href":
            assert re.fullmatch(r"#table-\d+", value)
    assert not re.search(r"url\(|@import|//", page.data["style"])
    assert "prefers-color-scheme: dark" in page.data["style"]
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", text)
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        drawn = ElementTree.fromstring(picture)
        _, _, width, height = map(float, drawn.attrib["viewBox"].split())
        for rect in drawn.iter("rect"):
            x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            assert 0 <= x <= x + w <= width + 0.1
            assert 0 <= y <= y + h <= height + 0.1
    assert not set("<>&") & set(page.data["script"])
    return page, json.loads(page.data["script"], parse_constant=pytest.fail)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Three files, two of which are covered, and others' statistics for the last snapshot."""
    made = make(tmp_path_factory.mktemp("page"), builds=2)
    made.append(rows(100))
    register_others(made)
    return made.refresh()


@pytest.fixture(scope="module")
def written(table: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "report.html"
    found = sidecar.report(table, path)
    assert (found.path, found.bytes) == (str(path), path.stat().st_size)
    assert [one.to_dict() for one in found.tables] == [{"table": "db.t", "error": None, "warnings": []}]
    return path


def test_the_page_is_strict_and_its_json_is_what_the_functions_return(table: Table, written: Path) -> None:
    page, data = checked(written)
    (facts,) = data["tables"]
    status = sidecar.status(table).to_dict()
    for found in (facts["status"], status):
        found["waiting"].pop("seconds")
    assert facts["status"] == status
    assert facts["advice"]["columns"][0]["name"] == "k"
    assert [one["statistics_bytes"] is not None for one in facts["snapshots"]] == [True, True, True]
    assert [one["files"] for one in facts["snapshots"]] == [1, 2, 3]
    assert "sidecar refresh db.t" in page.data["code"]
    for heading in (
        "Coverage",
        "Sizes",
        "Example lookups",
        "Fill of the filters",
        "Distinct values",
        "History",
        "Advice",
    ):
        assert heading in page.data["h3"]


def test_funnels_are_those_of_plans(table: Table, written: Path) -> None:
    _, data = checked(written)
    existing, beside = data["tables"][0]["lookups"]
    planned = sidecar.plan(table, "k = 5")  # the lower bound of the file in the middle
    assert (existing["column"], existing["of"], existing["files"]) == ("k", "a value of a file", 3)
    assert existing["kept"] == planned.files_kept == 1
    assert existing["after_bounds"] == 3 - planned.funnel.dropped_by_metadata
    assert (beside["of"], beside["kept"]) == ("a value beside it", sidecar.plan(table, "k = 6").files_kept)


def test_fill_by_file_has_the_mean_of_all_filters(table: Table) -> None:
    facts = collect_facts(table, with_advice=False)
    (fill,) = facts.fill
    shares = [share for share in fill.files if share is not None]
    assert (len(fill.files), len(shares)) == (3, 2)  # the file that waits has none
    assert fill.files[-1] is None  # it is the newest
    opened = sidecar.open_sidecar(table)
    exact = read_fill([segment.bundles[1] for segment in opened.segments]).fill
    opened.close()
    assert exact is not None
    assert (min(shares), max(shares)) == (exact.min, exact.max)
    assert fill.filters_read == fill.filters == 2
    (distinct,) = facts.distinct
    assert (distinct.column, distinct.low, distinct.estimate, distinct.high) == ("k", 10, 10, 10)


def test_names_that_are_markup_are_text(tmp_path: Path) -> None:
    name = f"k{HOSTILE}"
    of_table = f"t{HOSTILE}".replace("/", "|").replace("\x1b", "")  # no location may have control characters
    made = open_store(tmp_path).create_table(("db", of_table), pa.schema([(name, pa.int64())]))
    made.append(pa.table({name: [1, 2, 3]}))
    sidecar.build(made.refresh(), [name], engine="local")
    sidecar.report(made.refresh(), tmp_path / "hostile.html")
    page, data = checked(tmp_path / "hostile.html")
    assert name in data["tables"][0]["status"]["covered"]
    shown = name.replace("\x1b", "\ufffd").replace("\u202e", "\ufffd")
    assert shown in page.data["td"]
    assert "alert(1)" in page.data["h2"]


def test_encrypted_filters_are_covered_and_nothing_else_is_said_of_them(tmp_path: Path) -> None:
    made = make(tmp_path, builds=0)
    made.append(rows())
    sidecar.build(made.refresh(), ["k", "s"], encryption_keys=bundle_keys("s"), engine="local")
    facts = collect_facts(made.refresh(), with_advice=False)
    assert facts.status.covered["s"]["bloom"].share == facts.status.covered["k"]["bloom"].share == 1.0
    assert set(facts.status.lookups) == {"k"}
    assert {one.column for one in (*facts.lookups, *facts.fill, *facts.distinct)} == {"k"}
    assert (facts.warnings, facts.status.warnings) == ([], [])


def test_a_file_that_exists_is_never_replaced_and_found_out_first(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.html"
    path.write_text("mine")
    monkeypatch.setattr("sidecar.reports.page.writing.collect_facts", lambda *_, **__: pytest.fail("was collected"))
    with pytest.raises(errors.UsageError, match="exists already"):
        sidecar.report(table, path)
    assert path.read_text() == "mine"


def test_a_failure_is_on_the_page_beside_other_tables_and_alone_it_is_raised(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("other", "broken"):
        (tmp_path / name).mkdir()
    other = make(tmp_path / "other", builds=0, name="db.empty")
    broken = make(tmp_path / "broken", builds=1, name="db.broken")
    manifest_list = broken.current_snapshot().manifest_list  # type: ignore[union-attr]
    broken.io.delete(manifest_list)
    found = sidecar.report([table, other, broken], tmp_path / "many.html", advice=False)
    page, data = checked(tmp_path / "many.html")
    assert [one.error is None for one in found.tables] == [True, True, False]
    assert "error" in data["tables"][2]
    assert "no snapshot yet" in page.data["p"]
    with pytest.raises(errors.SidecarError):
        sidecar.report(broken, tmp_path / "none.html", advice=False)
    assert not (tmp_path / "none.html").exists()


def test_without_advice_no_data_file_is_read(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = type(table.io).new_input
    monkeypatch.setattr(type(table.io), "new_input", lambda io, path: (opened.append(path), real(io, path))[1])
    sidecar.report(table, tmp_path / "quick.html", advice=False)
    assert opened
    assert not [path for path in opened if path.endswith(".parquet")]


def test_times_are_words_and_a_long_name_keeps_its_kind() -> None:
    assert [span(seconds) for seconds in (0.84, 12, 61, 3600, 187_000)] == [
        "0.8 seconds", "12 seconds", "1 minute 1 second", "1 hour", "2 days 3 hours",
    ]  # fmt: skip
    assert moment("2026-11-28T10:05:06+02:00") == moment(1795853106) == "2026-11-28 08:05 UTC"
    drawn = bars("coverage", [("a_column_with_a_name_that_is_too_long_for_a_picture", "page-index", 1.0, "99.9 %")])
    assert [text.text for text in drawn.iter("text")] == ["a_column_with_a_name_tha… page-index", "99.9 %"]


@needs_browser
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_browser_shows_it(written: Path, tmp_path: Path, width: int) -> None:
    page, _ = checked(written)
    seen = shown(written.as_uri(), tmp_path, width)
    assert seen.errors == []
    assert seen.overflow <= 0
    assert seen.smallest >= 11
    assert seen.faint == []
    assert seen.pictures == page.tags.count("svg") > 0
    for tag in ("h1", "h2"):
        assert all(line.strip().lower() in seen.text.lower() for line in page.data[tag].splitlines() if line.strip())
