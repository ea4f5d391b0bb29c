"""embed --from: no file gets the filters of another one, however alike they look; DuckDB, which believes filters, finds
every value in what is written."""

from __future__ import annotations

import hashlib
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.conversion.matching.identity import identity_of
from sidecar.conversion.matching.match import BY_DIGEST
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.errors import UsageError
from sidecar.storage.local import LocalSource
from tests.conversion.cases import as_remote
from tests.embedding.cases import opened
from tests.embedding.witness_cases import ROWS, assert_nothing_lost, extracted, indexed_file, write


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    return indexed_file(tmp_path)


def test_two_files_of_one_size_and_footer_are_told_apart(indexed: Path, tmp_path: Path) -> None:
    """The case that all that follows is about: only the pages differ."""
    other = write(tmp_path / "other.parquet", 2)
    one, two = (identity_of(OpenParquet(*opened(path))) for path in (tmp_path / "bare" / "a.parquet", other))
    assert (one.size, one.units, one.fingerprint) == (two.size, two.units, two.fingerprint)
    assert one.digest() != two.digest()
    assert identity_of(OpenParquet(*opened(indexed))).digest() == one.digest(), "indexes change no page"


@pytest.mark.parametrize("options", [{}, {"use_dictionary": True, "compression": "zstd"}])
def test_the_digest_is_that_of_the_specification(tmp_path: Path, options: dict[str, Any]) -> None:
    """Computed from pyarrow's view of the footer."""
    path = write(tmp_path / "a.parquet", 1, **options)
    data, metadata = path.read_bytes(), pq.read_metadata(path)
    expected = hashlib.sha256()
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            expected.update(struct.pack("<Q", chunk.total_compressed_size))
            expected.update(data[start : start + chunk.total_compressed_size])
    assert identity_of(OpenParquet(*opened(path))).digest() == expected.digest()
    with closing(SidecarFile.open(LocalSource(extracted(_with_filters(path))))) as found:
        (entry,) = found.segments[0].files([0])
    assert entry is not None
    assert entry.entry[16:] == expected.digest()


def _with_filters(path: Path) -> Path:
    target = path.with_name(f"indexed-{path.name}")
    sidecar.embed(str(path), into=str(target), bloom=["k"])
    return target


@pytest.mark.parametrize("where", ["at its path", "elsewhere"])
def test_a_file_with_other_pages_than_were_recorded_is_refused(indexed: Path, tmp_path: Path, where: str) -> None:
    puffin = extracted(indexed)
    path = tmp_path / "bare" / "a.parquet" if where == "elsewhere" else indexed
    if where == "elsewhere":
        write(path, 2)
    else:
        path.unlink()
        sidecar.embed(str(write(tmp_path / "again.parquet", 2)), into=str(path), bloom=["k", "s"], page_index=True)
    with pytest.raises(UsageError, match="rewritten since it was indexed"):
        sidecar.embed(str(path), into=str(tmp_path / "out.parquet"), from_=puffin)
    assert not (tmp_path / "out.parquet").exists()


def test_without_a_digest_all_values_are_looked_up(indexed: Path, tmp_path: Path) -> None:
    puffin, target = extracted(indexed, digest=False), tmp_path / "out.parquet"
    right = sidecar.embed(str(indexed), into=str(target), from_=puffin).only
    assert right.ways() == {"bloom": {"exact": 6}, "page-index": {"exact": 6}}
    assert right.witness.proof == ""
    assert (right.witness.chunks, right.witness.values) == (6, 2 * ROWS)
    assert right.warnings() == []
    other = write(tmp_path / "bare" / "a.parquet", 2)
    wrong = sidecar.embed(str(other), into=str(tmp_path / "wrong.parquet"), from_=puffin).only
    assert wrong.ways() == {"bloom": {"values": 6}, "page-index": {"values": 6}}
    assert any("they belong to another file" in text for text in wrong.warnings())
    assert wrong.to_dict()["witness"]["contradictions"]
    assert_nothing_lost(tmp_path / "wrong.parquet", 2)
    (alone,) = sidecar.embed([str(other)], into=str(tmp_path / "all"), from_=puffin)
    assert alone.ways() == wrong.ways()
    assert_nothing_lost(Path(alone.target), 2)


@pytest.mark.parametrize("what", ["filters", "page indexes"])
def test_each_kind_of_index_is_looked_at_alone(indexed: Path, tmp_path: Path, what: str) -> None:
    puffin = extracted(indexed, digest=False)
    other = write(tmp_path / "bare" / "a.parquet", 2)
    only: dict[str, Any] = {"bloom": ["k", "s"]} if what == "filters" else {"page_index": True}
    report = sidecar.embed(str(other), into=str(tmp_path / "out.parquet"), from_=puffin, **only).only
    assert any("belong to another file" in text for text in report.warnings())
    assert [list(ways) for ways in report.ways().values() if ways] == [["values"]]
    assert_nothing_lost(tmp_path / "out.parquet", 2)


def test_with_a_proof_one_page_a_chunk_is_decoded_and_without_one_all(indexed: Path, tmp_path: Path) -> None:
    source = str(tmp_path / "bare" / "a.parquet")
    pages = {}
    for proof in (BY_DIGEST, ""):
        puffin, target = extracted(indexed, digest=bool(proof)), tmp_path / f"{bool(proof)}.parquet"
        report = sidecar.embed(source, into=str(target), from_=puffin).only
        assert report.ways() == {"bloom": {"exact": 6}, "page-index": {"exact": 6}}
        assert report.witness.proof == proof
        pages[proof] = (report.witness.chunks, report.witness.pages)
        assert target.read_bytes() == (tmp_path / "True.parquet").read_bytes()
        Path(puffin).unlink()
    assert pages[BY_DIGEST] == (6, 6)
    assert pages[""][1] > 6 * 4


def test_copies_in_several_folders_are_told_apart_by_their_pages(tmp_path: Path) -> None:
    """Two files of one name, size and footer; each is found again where it was moved to."""
    paths, moved = [], []
    for seed in (1, 2):
        bare = write(tmp_path / f"bare={seed}" / "a.parquet", seed)
        paths.append(tmp_path / f"dt={seed}" / "a.parquet")
        paths[-1].parent.mkdir()
        sidecar.embed(str(bare), into=str(paths[-1]), bloom=["k", "s"], page_index=True)
        moved.append(write(tmp_path / f"moved={seed}" / "a.parquet", seed))
    puffin = str(tmp_path / "x.puffin")
    sidecar.extract([str(path) for path in paths], puffin)
    for seed, path in enumerate(moved, 1):
        report = sidecar.embed(str(path), into=str(tmp_path / f"out-{seed}.parquet"), from_=puffin).only
        assert report.witness.proof == BY_DIGEST
        assert_nothing_lost(tmp_path / f"out-{seed}.parquet", seed)
    unsure = str(tmp_path / "y.puffin")
    with as_remote():
        sidecar.extract([str(path) for path in paths], unsure)
    with pytest.raises(UsageError, match="several files"):
        sidecar.embed(str(moved[0]), into=str(tmp_path / "no.parquet"), from_=unsure)


def test_two_pasts_of_one_path_are_gathered_as_two_files(tmp_path: Path) -> None:
    """The filters of one column are of the file as it was, those of the other of the file that came to its path."""
    path, parts = tmp_path / "a.parquet", []
    for seed, column in ((1, "k"), (2, "s")):
        path.unlink(missing_ok=True)
        bare = write(tmp_path / f"bare-{seed}.parquet", seed)
        sidecar.embed(str(bare), into=str(path), bloom=["k", "s"], page_index=True)
        parts.append(str(tmp_path / f"{column}.puffin"))
        sidecar.extract([str(path)], parts[-1], columns=[column])
    gathered = str(tmp_path / "both.puffin")
    sidecar.convert(parts, gathered)
    for seed, column in ((1, "k"), (2, "s")):
        target = tmp_path / f"out-{seed}.parquet"
        report = sidecar.embed(str(tmp_path / f"bare-{seed}.parquet"), into=str(target), from_=gathered).only
        filters = {(o.column, o.way) for o in report.outcomes if o.kind == "bloom" and o.way != "none"}
        assert filters == {(column, "exact")}
        assert_nothing_lost(target, seed)
