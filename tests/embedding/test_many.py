"""embed and strip of many files into one folder: where they go, and that nothing is replaced."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import DamagedFileError, UsageError
from sidecar.parquet.footer import read_footer
from sidecar.storage.local import LocalSource
from tests.conversion.cases import indexed, rows

FILES = Path(__file__).resolve().parents[1] / "data"
PUBLISHED = Path(__file__).resolve().parents[2] / "spec_vectors" / "published"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Files with indexes in two partitions, and an ORC file beside these."""
    folder = tmp_path / "data"
    for number, name in enumerate(["p=1/a b.parquet", "p=2/[x]*.parquet"]):
        (folder / name).parent.mkdir(parents=True)
        shutil.move(indexed(tmp_path, number, 300), folder / name)
    shutil.copy(PUBLISHED / "orc_java.orc", folder)
    return folder


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


NAMES = ["orc_java.orc", "p=1/a b.parquet", "p=2/[x]*.parquet"]


def test_files_keep_their_paths_below_the_named_folder(data: Path, tmp_path: Path) -> None:
    report = sidecar.strip(str(data), str(tmp_path / "bare"))
    assert tree(tmp_path / "bare") == NAMES
    assert [os.path.relpath(file.target, tmp_path / "bare") for file in report.files] == NAMES
    for name in NAMES[1:]:
        assert pq.read_table(tmp_path / "bare" / name).equals(pq.read_table(data / name))
    assert report.to_dict()["size_before"] == sum((data / name).stat().st_size for name in NAMES)
    again = sidecar.embed(f"{tmp_path}/bare/**/*.parquet", into=str(tmp_path / "new"), bloom=["k"])
    assert tree(tmp_path / "new") == NAMES[1:]
    assert again.ways()["bloom"]["values"] == 6
    assert sidecar.verify(str(tmp_path / "new"), data=True).problems == []


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["data/p=1"], ["a b.parquet"]),
        (["data/p=1", "data/p=2"], ["p=1/a b.parquet", "p=2/[x]*.parquet"]),
        (["data/p=*/*.parquet"], ["p=1/a b.parquet", "p=2/[x]*.parquet"]),
        (["data/p=1/*.parquet"], ["a b.parquet"]),
        (["data/p=1/a b.parquet"], ["a b.parquet"]),
        (["data/p=1/a b.parquet", "./data/orc_java.orc"], ["orc_java.orc", "p=1/a b.parquet"]),
        (["data/p=2/../p=1"], ["a b.parquet"]),
        (["data/p=1", "file:{}/data/p=2"], ["p=1/a b.parquet", "p=2/[x]*.parquet"]),
    ],
)
def test_the_layout_depends_on_what_was_named(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: list[str], expected: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sidecar.strip([path.format(tmp_path) for path in paths], "out/deep")
    assert tree(tmp_path / "out" / "deep") == expected


def test_nothing_is_written_if_one_target_exists(data: Path, tmp_path: Path) -> None:
    taken = tmp_path / "out" / "p=2" / "[x]*.parquet"
    taken.parent.mkdir(parents=True)
    taken.write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"the file exists already; file .*\[x\]"):
        sidecar.strip(str(data), str(tmp_path / "out"))
    assert tree(tmp_path / "out") == ["p=2/[x]*.parquet"]
    assert taken.read_bytes() == b"mine"
    with pytest.raises(UsageError, match="exists already"):
        sidecar.strip(str(data), str(data))
    assert tree(data) == NAMES


def test_two_files_with_one_target_are_refused(data: Path, tmp_path: Path) -> None:
    """``link/../a`` is not ``a`` if the link leads elsewhere, but both would be written to one path."""
    (tmp_path / "far" / "inner").mkdir(parents=True)
    pq.write_table(rows(5, 10), tmp_path / "far" / "x.parquet")
    pq.write_table(rows(6, 10), data / "x.parquet")
    os.symlink(tmp_path / "far" / "inner", data / "link")
    with pytest.raises(UsageError, match="twice"):
        sidecar.strip([f"{data}/x.parquet", f"{data}/link/../x.parquet"], str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_link_in_the_folder_does_not_lead_out(data: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "out" / "p=1")
    with pytest.raises(UsageError, match="leads out of the folder"):
        sidecar.strip(str(data), str(tmp_path / "out"))
    assert tree(tmp_path / "elsewhere") == []


def test_bad_files_do_not_stop_the_others_and_leave_nothing(data: Path, tmp_path: Path) -> None:
    (data / "p=1" / "cut.parquet").write_bytes((data / NAMES[1]).read_bytes()[:5000])
    with pytest.raises(DamagedFileError, match=r"cut\.parquet"):
        sidecar.strip(str(data / "p=1" / "cut.parquet"), str(tmp_path / "one"))
    assert tree(tmp_path / "one") == []
    report = sidecar.embed(f"{data}/p=*", into=str(tmp_path / "two"), bloom=["k"])
    assert tree(tmp_path / "two") == NAMES[1:]
    assert [os.path.basename(file) for file in report.failed] == ["cut.parquet"]
    assert list(report.to_dict()["failed"]) == list(report.failed)


def test_options_of_parquet_are_refused_before_the_first_byte_if_one_file_is_orc(data: Path, tmp_path: Path) -> None:
    (data / NAMES[0]).rename(data / "z.parquet")  # the last file, and its name lies
    for options in ({"page_index": True}, {"bloom": ["k"], "placement": "row-group"}):
        with pytest.raises(UsageError, match=r"ORC.*z\.parquet"):
            sidecar.embed(str(data), into=str(tmp_path / "out"), **options)  # type: ignore[call-overload]
    assert not (tmp_path / "out").exists()


def test_what_the_old_files_had_and_the_new_ones_lack_is_counted_and_named(data: Path, tmp_path: Path) -> None:
    for number in range(2):
        shutil.copy(FILES / "parquet" / "variants" / "nn_bloom.parquet", data / f"{number}.parquet")
    report = sidecar.embed(f"{data}/*.parquet", into=str(tmp_path / "out"), page_index=True)
    assert report.to_dict()["lost"] == sum(file.lost for file in report) == 2
    assert all("x: lost 1 filters of the old file: lacks the canonical NaN" in text for text in report.warnings())
    assert [path for path in report.to_dict()["files"] if path["lost"] != 1] == []


def test_a_sound_filter_stays_if_no_other_can_be_built(data: Path, tmp_path: Path) -> None:
    file = data / NAMES[1]
    footer = read_footer(LocalSource(str(file)))
    chunk = footer.row_groups[0].columns[footer.leaf("k").index]  # type: ignore[union-attr]
    spoiled = bytearray(file.read_bytes())
    spoiled[chunk.data_page_offset : chunk.data_page_offset + 4] = bytes(4)
    file.write_bytes(spoiled)
    report = sidecar.embed(file, into=tmp_path / "new.parquet", bloom=["k"], reuse="never").only
    ways = {o.row_group: (o.way, o.reason) for o in report.outcomes if (o.column, o.kind) == ("k", "bloom")}
    assert ways[0][0] == "exact"
    assert ways[0][1].startswith("to be built anew, but no other can be built: ")
    assert {way for group, (way, _) in ways.items() if group} == {"values"}
    assert (report.lost, report.damaged) == (0, True)
    native = FILES / "orc" / "java_zlib_2stripes_utf8.orc"
    kept = sidecar.embed(native, into=tmp_path / "new.orc", bloom=["c_tsi", "c_int"], reuse="never").only
    assert {(o.column, o.way) for o in kept.outcomes if o.column in ("c_tsi", "c_int")} == {
        ("c_tsi", "exact"),
        ("c_int", "values"),
    }
    assert kept.lost == 3, "those of c_bool, which hold no values"


def test_local_and_remote_files_do_not_mix(data: Path, tmp_path: Path) -> None:
    from sidecar.embedding.many import targets_of
    from sidecar.many_files.find import FoundFiles

    found = FoundFiles(("/d/a.parquet", "s3://b/a.parquet"), ("/d", "s3://b"), {})
    with pytest.raises(UsageError, match="no folder in common"):
        targets_of(found, "out")
    remote = FoundFiles(("s3://b/t/p=1/a.parquet", "s3://b/t/p=2/a.parquet"), ("s3://b/t/", "s3://b/t/"), {})
    assert list(targets_of(remote, "s3://c/out").values()) == [
        "s3://c/out/p=1/a.parquet",
        "s3://c/out/p=2/a.parquet",
    ]
