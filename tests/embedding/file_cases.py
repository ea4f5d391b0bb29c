"""Embedding into single Parquet files, with the checks that every embedded file passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidecar.embedding.embed import embed
from sidecar.embedding.report import EmbedReport
from tests.embedding.cases import (
    assert_same_footer,
    assert_same_pages,
    assert_sound,
    leaf_paths,
)

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
PLACEMENTS = pytest.mark.parametrize("placement", ["end", "row-group"])


def embedded(source: Path, columns: list[str] | None = None, **options: Any) -> tuple[Path, EmbedReport]:
    """The file with filters (on all leaves by default) and page indexes, checked in every general respect."""
    target = source.with_name(f"{source.stem}-{options.get('placement', 'end')}.parquet")
    bloom = leaf_paths(source) if columns is None else columns
    report = embed(str(source), into=str(target), bloom=bloom, page_index=True, **options).only
    assert_same_pages(source, target)
    assert_same_footer(source, target, moved=options.get("placement") == "row-group")
    assert_sound(target)
    assert report.written.size == target.stat().st_size
    return target, report


def ways_of(report: EmbedReport, kind: str, column: str) -> set[str]:
    return {o.way for o in report.outcomes if o.kind == kind and o.column == column}


def reasons_of(report: EmbedReport, kind: str, column: str) -> set[str]:
    return {o.reason for o in report.outcomes if o.kind == kind and o.column == column}
