"""verify of a Puffin file against data files: each way in which a file can differ from the indexed one is noticed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import UsageError
from sidecar.filters.orc.bloom import OrcBloomFilter
from tests.conversion.cases import as_remote, foreign, indexed
from tests.conversion.test_encrypted import FILE, keys
from tests.iceberg.cases import create, local

ROWS = 4000


def write(path: Path, seed: int = 0) -> Path:
    """Two row groups of plain, uncompressed numbers, with filters."""
    values = np.random.default_rng(seed).integers(0, 1 << 50, ROWS) | 1
    options: dict[str, Any] = {"bloom_filter_options": {"k": {"ndv": ROWS // 2, "fpp": 1e-4}}}
    pq.write_table(
        pa.table({"k": values}),
        path,
        row_group_size=ROWS // 2,
        use_dictionary=False,
        compression="none",
        write_page_index=True,
        **options,
    )
    return path


def swap_value(path: Path) -> None:
    """Give one row another value, between the bounds, in place: size, rows and footer stay."""
    data, values = path.read_bytes(), pq.read_table(path)["k"].to_numpy()
    middle = int(np.sort(values[: ROWS // 2])[ROWS // 4])
    old = middle.to_bytes(8, "little")
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, (middle + 1).to_bytes(8, "little")))


def clear_bit(path: Path) -> None:
    """Clear one set bit in the first filter of a data file."""
    found = sidecar.inspect(str(path)).only.to_dict()["units"][0]["columns"]["k"]["bloom_filter"]
    data = bytearray(path.read_bytes())
    first = found["offset"] + found["length"] - found["bytes"]
    at = next(at for at in range(first, first + found["bytes"]) if data[at])
    data[at] &= data[at] - 1
    path.write_bytes(data)


def texts(found: dict[str, Any]) -> list[str]:
    return [problem["problem"] for problem in found["problems"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        write(tmp_path / f"{number}.parquet", number)
    return tmp_path


def paths(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("*.parquet"))


def extract(folder: Path) -> str:
    target = str(folder / "x.puffin")
    sidecar.extract(paths(folder), target)
    return target


def test_the_files_that_were_indexed_have_no_problem(folder: Path) -> None:
    puffin = extract(folder)
    found = sidecar.verify(puffin, against=paths(folder)).to_dict()
    assert found["problems"] == []
    assert found["looked_up"] == {
        "units": 3, "units_total": 3, "values": 3 * ROWS, "indexes": 6, "files_not_given": 0,
    }  # fmt: skip
    some = sidecar.verify(puffin, against=paths(folder)[:2], sample=0.5).to_dict()
    assert (some["looked_up"]["units"], some["looked_up"]["files_not_given"], some["checked"]) == (1, 1, 3)


@pytest.mark.parametrize("digest", [True, False])
def test_a_swapped_file_of_equal_name_size_and_rows_is_noticed(folder: Path, digest: bool) -> None:
    with nullcontext() if digest else as_remote():
        puffin = extract(folder)
    swap_value(folder / "1.parquet")
    found = sidecar.verify(puffin, against=paths(folder)).to_dict()
    assert {problem["file"] for problem in found["problems"]} == {str(folder / "1.parquet")}
    expected = "rewritten" if digest else "denies 1 of 2000 values"
    assert any(expected in text for text in texts(found))


def longer(folder: Path) -> None:
    pq.write_table(pa.table({"k": range(ROWS + 1)}), folder / "1.parquet")


def cut_short(folder: Path) -> None:
    data = (folder / "1.parquet").read_bytes()
    (folder / "1.parquet").write_bytes(data[:-100])


def gone(folder: Path) -> None:
    (folder / "1.parquet").unlink()


@pytest.mark.parametrize("change", [longer, cut_short, gone])
def test_a_changed_file_is_noticed(folder: Path, change: Callable[[Path], None]) -> None:
    puffin, before = extract(folder), paths(folder)
    change(folder)
    found = sidecar.verify(puffin, against=before).to_dict()
    assert {problem["file"] for problem in found["problems"]} == {str(folder / "1.parquet")}
    assert found["looked_up"]["units"] == 2


def test_a_filter_with_a_bit_cleared_is_noticed(folder: Path) -> None:
    """Checksums are right, because the bit was cleared before the filter was taken."""
    clear_bit(folder / "1.parquet")
    with as_remote():
        puffin = extract(folder)
    assert sidecar.verify(puffin).to_dict()["problems"] == []
    found = sidecar.verify(puffin, against=paths(folder)).to_dict()
    (problem,) = found["problems"]
    assert (problem["file"], problem["unit"], problem["column"]) == (str(folder / "1.parquet"), 0, "k")
    assert "sidecar: Bloom filter: denies" in problem["problem"]


def test_a_bit_that_is_cleared_in_the_puffin_file_is_noticed(folder: Path) -> None:
    puffin = Path(extract(folder))
    (blob,) = (b for b in sidecar.inspect(str(puffin)).only.to_dict()["blobs"] if b["type"] == "sidecar-sbbf-v1")
    data = bytearray(puffin.read_bytes())
    at = next(at for at in range(blob["offset"] + 40, len(data)) if data[at])
    data[at] &= data[at] - 1
    puffin.write_bytes(data)
    assert any("checksum" in text for text in texts(sidecar.verify(str(puffin), against=paths(folder)).to_dict()))


def test_a_file_that_is_not_listed_and_one_that_is_given_as_two(folder: Path) -> None:
    puffin = extract(folder)
    other = write(folder / "other.parquet", 9)
    assert any(
        "sidecar does not list this file" in t for t in texts(sidecar.verify(puffin, against=[str(other)]).to_dict())
    )
    copy = shutil.copy(folder / "1.parquet", folder / "copy.parquet")
    found = sidecar.verify(puffin, against=[str(folder / "1.parquet"), str(copy)]).to_dict()
    assert texts(found) == [f"sidecar: it is the same listed file as {folder / '1.parquet'}"]


def test_what_cannot_be_compared_is_refused(folder: Path) -> None:
    puffin = extract(folder)
    for wrong in ([], [paths(folder)[0]] * 2):
        with pytest.raises(UsageError, match="give each data file once"):
            sidecar.verify(puffin, against=wrong)
    with pytest.raises(UsageError, match="only a Puffin file is compared"):
        sidecar.verify(paths(folder)[0], against=paths(folder))


def test_a_tables_sidecar_against_its_files(catalog: Any) -> None:
    """Nothing but the values tells a file from another one of its size, rows and row groups."""
    table = create(catalog, "db.verify_against", files=2, partitioned=False)
    sidecar.build(table, ["i", "l", "s"], kinds=["bloom", "page-index"], engine="local")
    table.refresh()
    puffin = table.metadata.statistics[0].statistics_path
    files = [local(task.file.file_path) for task in table.scan().plan_files()]
    found = sidecar.verify(puffin, against=[str(path) for path in files]).to_dict()
    assert found["problems"] == []
    assert found["looked_up"]["values"] > 0
    kept = files[0].read_bytes()
    data = pq.read_table(files[0])
    try:
        pq.write_table(data.slice(1), files[0])
        assert texts(sidecar.verify(puffin, against=[str(files[0])]).to_dict())
    finally:
        files[0].write_bytes(kept)


def test_orc_files_and_encrypted_ones(tmp_path: Path) -> None:
    orc.write_table(pa.table({"k": pa.array(range(5000))}), tmp_path / "a.orc", bloom_filter_columns=[1])
    puffin = str(tmp_path / "o.puffin")
    sidecar.extract([str(tmp_path / "a.orc")], puffin)
    found = sidecar.verify(puffin, against=[str(tmp_path / "a.orc")]).to_dict()
    assert (found["problems"], found["looked_up"]["values"]) == ([], 5000)
    orc.write_table(pa.table({"k": pa.array(range(1, 5001))}), tmp_path / "a.orc", bloom_filter_columns=[1])
    assert sidecar.verify(puffin, against=[str(tmp_path / "a.orc")]).to_dict()["problems"]
    sealed, own = str(tmp_path / "e.puffin"), keys(str="master")
    source = str(foreign(FILE))
    sidecar.extract([source], sealed, columns=["str"], encryption_keys=own)
    assert sidecar.verify(sealed, against=[source], encryption_keys=own).to_dict()["problems"] == []
    without = sidecar.verify(sealed, against=[source]).to_dict()["problems"]
    assert any("not checked" in problem["problem"] for problem in without)


def test_many_columns_of_a_file_with_nulls_and_lists(tmp_path: Path) -> None:
    parts = [str(indexed(tmp_path, number)) for number in range(2)]
    sidecar.extract(parts, str(tmp_path / "x.puffin"))
    assert sidecar.verify(str(tmp_path / "x.puffin"), against=parts).to_dict()["problems"] == []


def test_orc_filters_of_parquet_files_are_looked_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, empty = str(folder / "as-orc.puffin"), str(folder / "empty.puffin")
    sidecar.convert(paths(folder), target, as_="orc")
    found = sidecar.verify(target, against=paths(folder))
    assert found.ok
    assert found.looked_up is not None
    assert found.looked_up.values == 3 * ROWS
    monkeypatch.setattr(OrcBloomFilter, "insert_arrow", lambda *_: None)
    sidecar.convert(paths(folder), empty, as_="orc")
    denied = sidecar.verify(empty, against=paths(folder))
    assert {problem.problem for problem in denied.problems} == {
        f"sidecar: Bloom filter: denies {ROWS // 2} of {ROWS // 2} values that the column chunk has"
    }
    assert len(denied.problems) == 6
