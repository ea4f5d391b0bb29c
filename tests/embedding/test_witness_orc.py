"""ORC files get no filters of other files out of a sidecar."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pytest

import sidecar
from sidecar.conversion.matching.identity import identity_of
from sidecar.conversion.matching.match import BY_DIGEST
from sidecar.conversion.matching.orc_witness import ask_row_groups
from sidecar.data_files.open_orc import OpenOrc
from sidecar.errors import UsageError
from sidecar.filters.orc.bloom import OrcBloomFilter, size_for
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import read_tail
from sidecar.orc.verify.verify import verify_file as verify_orc
from sidecar.questions.value_check import ValueCheck
from sidecar.storage.local import LocalSource
from tests.embedding.witness_cases import ROWS, extracted, keys_of


def write_orc(path: Path, seed: int) -> Path:
    """Texts of one length: of numbers the tail has the sum, which would tell the files apart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = keys_of(seed)
    table = pa.table({"s": [f"{key:020}" for key in keys], "b": [f"{key:030}".encode() for key in keys]})
    pyarrow.orc.write_table(table, path, compression="uncompressed", dictionary_key_size_threshold=0)
    return path


@pytest.fixture
def orc(tmp_path: Path) -> Path:
    target = tmp_path / "one" / "a.orc"
    target.parent.mkdir()
    bare = write_orc(tmp_path / "bare" / "a.orc", 1)
    sidecar.embed(str(bare), into=str(target), bloom=["s", "b"])
    return target


def _sound(path: str) -> bool:
    source = LocalSource(path)
    return verify_orc(source, ValueCheck()) == []


def test_orc_data_is_known_by_its_digest(orc: Path, tmp_path: Path) -> None:
    puffin, bare = extracted(orc), tmp_path / "bare" / "a.orc"
    sources = [LocalSource(str(path)) for path in (orc, bare)]
    digests = [identity_of(OpenOrc(source, read_tail(source))).digest() for source in sources]
    assert digests[0] == digests[1]
    report = sidecar.embed(str(bare), into=str(tmp_path / "out.orc"), from_=puffin).only
    assert report.ways()["bloom"].keys() == {"exact"}
    assert report.witness.proof == BY_DIGEST
    assert (report.witness.chunks, report.witness.pages) == (2, 2)
    write_orc(bare, 2)
    with pytest.raises(UsageError, match="rewritten since it was indexed"):
        sidecar.embed(str(bare), into=str(tmp_path / "no.orc"), from_=puffin)


def test_orc_values_that_are_denied_are_those_of_another_file(orc: Path, tmp_path: Path) -> None:
    puffin = extracted(orc, digest=False)
    right = sidecar.embed(str(tmp_path / "bare" / "a.orc"), into=str(tmp_path / "right.orc"), from_=puffin).only
    assert right.ways()["bloom"].keys() == {"exact"}
    assert (right.witness.proof, right.witness.values) == ("", 2 * ROWS)
    other = write_orc(tmp_path / "bare" / "a.orc", 2)
    wrong = sidecar.embed(str(other), into=str(tmp_path / "wrong.orc"), from_=puffin).only
    assert wrong.ways()["bloom"].keys() == {"values"}
    assert any("they belong to another file" in text for text in wrong.warnings())
    assert _sound(wrong.target)


def test_row_groups_of_nulls_are_passed_over_up_to_one_with_values(tmp_path: Path) -> None:
    path = tmp_path / "nulls.orc"
    values = pa.array([None] * 3000 + [f"{n:05}" for n in range(3000)])
    pyarrow.orc.write_table(pa.table({"s": values}), path, row_index_stride=1000, compression="uncompressed")
    source = LocalSource(str(path))
    tail = read_tail(source)
    (stripe,) = tail.stripes
    column = tail.column("s")
    assert column is not None
    footer = read_stripe_footer(source, tail, stripe)
    empty = OrcBloomFilter.empty(*size_for(1000, 0.01)), OrcEncoding.parse("orc/bytes")
    statistics = FileStatistics(source, tail)
    for whole in (False, True):
        said = ask_row_groups(source, tail, footer, column, [empty] * stripe.num_row_groups, statistics, whole=whole)
        assert (said.pages, said.contradiction) == (4, "the filter denies 1000 of 1000 values")
