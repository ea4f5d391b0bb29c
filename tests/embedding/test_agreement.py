"""What embed, extract and convert make of real files passes verify, and its filters are asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sidecar
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.orc.tail import is_orc, read_tail
from sidecar.parquet.footer import read_footer
from sidecar.storage.local import LocalSource
from tests.case_counts import TIMES
from tests.embedding.orc_cases import found_filters, opened

DATA = Path(__file__).resolve().parents[1] / "data"
FOLDERS = os.environ.get("SIDECAR_REAL_FILES", f"{DATA}/parquet:{DATA}/orc:{DATA}/wrong_writers").split(":")
"""SIDECAR_REAL_FILES names other folders, with colons between them."""
LARGE = 36_000 * TIMES
"""Bytes of files that take long: only thorough runs have all."""
FILES = sorted(
    path
    for folder in FOLDERS
    for path in Path(folder).rglob("*")
    if path.suffix in (".parquet", ".orc")
    if path.stat().st_size < LARGE or path.name in ("java_none_original.orc", "apache_over1k_bloom.orc")
)

ONLY_OTHERS_KNOW = ("the file says that its INTERVAL filters hash", "the header's algorithm is unknown")
"""Filters that sidecar cannot compare with values. They stay for readers that can."""


def problems(path: Path, *, against: Path | None = None) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    verified = sidecar.verify(path, data=True) if against is None else sidecar.verify(path, against=[against])
    for problem in verified.problems:
        if not any(text in problem.problem for text in ONLY_OTHERS_KNOW):
            found.setdefault(problem.column, []).append(problem.problem)
    return found


def leaves(path: Path) -> list[str]:
    """The columns of a file that `bloom` can name."""
    source = LocalSource(str(path))
    if is_orc(source):
        return [column.path for column in read_tail(source).columns if not column.is_compound]
    footer = read_footer(source)
    return [leaf.path for leaf in footer.columns if footer.leaf(leaf.path) is not None]


def made(function: Callable[..., Any], *arguments: Any, **options: Any) -> bool:
    """Whether a file was written; files that cannot be rewritten are refused with an error of ours."""
    try:
        function(*arguments, **options)
    except (UsageError, DamagedFileError, UnsupportedFeatureError):
        return False
    return True


def _is_readable(path: Path, column: str) -> bool:
    """Whether the values are sound: where a column has nothing that could contradict them, verify does not decode."""
    try:
        sidecar.scan(path, "true", columns=[column])
    except DamagedFileError:
        return False
    except UnsupportedFeatureError:
        pass
    return True


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_made_of_a_file_passes_verify(path: Path, tmp_path: Path) -> None:
    """No output has a problem in a column in which the bare file, without any index, has none."""
    ending = ".orc" if is_orc(LocalSource(str(path))) else ".parquet"
    bare, filtered, paged, back = (tmp_path / f"{name}{ending}" for name in ("bare", "filtered", "paged", "back"))
    taken, merged, refolded = tmp_path / "taken.puffin", tmp_path / "merged.puffin", tmp_path / f"refolded{ending}"
    if not made(sidecar.strip, path, bare):
        pytest.skip("the file cannot be rewritten")
    own = problems(bare).keys()
    if None in own:
        pytest.skip("the data of the file is damaged")
    written = [refolded] * made(sidecar.convert, path, refolded, fpp=0.2)
    written += [filtered] * made(sidecar.embed, path, into=filtered, bloom=leaves(path))
    written += [paged] * made(sidecar.embed, path, into=paged, page_index=True)
    if made(sidecar.extract, path, taken):
        assert problems(taken, against=path).keys() <= own
        written += [back] * made(sidecar.embed, bare, into=back, from_=taken)
    if made(sidecar.convert, path, merged, merge=True):
        assert problems(merged, against=path).keys() <= own
    for target in written:
        found = problems(target)
        for column in found.keys() - own:
            assert column is not None, f"{target.name}: {found}"
            assert not _is_readable(bare, column), f"{target.name}: {found}"
    if filtered in written and ending == ".orc":
        ours = opened(filtered)[1].columns_with_our_filters
        names = [column.path for column in opened(filtered)[1].columns if column.id in ours]
        assert all(found.trusted for name in names for found in found_filters(filtered, name))
