"""Work that runs twice, as a lost task does on Spark: one whole file, the same results, and no error for the second."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.embedding import rewritten_files
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UsageError
from tests.conversion.cases import indexed
from tests.embedding.table_cases import create, data_files, filters_of, on_disk
from tests.object_store import FolderIO

ORC = Path(__file__).resolve().parents[2] / "spec_vectors" / "published" / "orc_java.orc"
SECRET = b"k" * 16


class TwiceWork:
    """Pickles work, items and results as Spark does. Each item is done twice, and the second result counts."""

    name = "spark"

    def __init__(self, session: Any, reason: str) -> None:
        self.reason = reason

    def run(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        shipped = pickle.dumps(work)
        answers = []
        for item in items:
            for _ in range(2):
                try:
                    answer = pickle.dumps(pickle.loads(shipped)(pickle.loads(pickle.dumps(item))))
                except SidecarError as error:
                    answer = pickle.dumps(error)
            assert SECRET not in answer
            answers.append(answer)
        return (pickle.loads(answer) for answer in answers)


@pytest.fixture(autouse=True)
def twice(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have :class:`TwiceWork` in the place of Spark, and give the options that choose it."""
    monkeypatch.setattr("sidecar.spark.work.SparkWork", TwiceWork)
    return {"spark": object()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two Parquet files with indexes and an ORC file."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(2):
        shutil.move(indexed(tmp_path, number, 300), folder / f"{number}.parquet")
    shutil.copy(ORC, folder)
    return folder


def without(found: Any, *names: str) -> dict[str, Any]:
    left_out = {"seconds", "engine", "engine_reason", "target", "folder", *names}
    return {key: value for key, value in found.to_dict().items() if key not in left_out}


def test_values_are_looked_up_as_here(data: Path, twice: Any) -> None:
    here, there = sidecar.verify(str(data), data=True), sidecar.verify(str(data), data=True, **twice)
    assert without(there) == without(here)
    assert (here.engine, there.engine, there.engine_reason) == ("local", "spark", "a Spark session was given")
    assert there.looked_up is not None
    assert there.looked_up.values > 1000
    assert sidecar.verify(str(data), **twice).engine == "local"


def test_the_error_of_one_file_comes_back_as_it_was(data: Path, twice: Any) -> None:
    paths = [str(data / name) for name in ("0.parquet", "missing.parquet", "1.parquet")]
    with pytest.raises(StorageError) as here:
        sidecar.verify(paths[1], data=True)
    with pytest.raises(StorageError) as there:
        sidecar.verify(paths[1], data=True, **twice)
    assert there.value.to_dict() == here.value.to_dict()
    found = sidecar.verify(paths, data=True, **twice)
    assert [file.file for file in found] == [paths[0], paths[2]]
    assert [(file, type(error)) for file, error in found.failed.items()] == [(paths[1], StorageError)]


@pytest.mark.parametrize("options", [{}, {"columns": ["k"]}, {"bloom": False}], ids=str)
def test_indexes_are_extracted_as_here(data: Path, tmp_path: Path, twice: Any, options: Any) -> None:
    files = sorted(map(str, data.glob("*.parquet")))
    here = sidecar.extract(files, tmp_path / "here.puffin", **options)
    there = sidecar.extract(files, tmp_path / "there.puffin", **options, **twice)
    assert there.engine == "spark"
    assert without(there) == without(here)
    for name in ("here", "there"):
        assert sidecar.verify(tmp_path / f"{name}.puffin", against=files).problems == []


def test_extracting_with_keys_sends_no_key_back(data: Path, tmp_path: Path, twice: Any) -> None:
    keys = sidecar.EncryptionKeys(retriever=sidecar.ExplicitKeys({b"master": SECRET}), bundle_keys={"k": b"master"})
    target = tmp_path / "sealed.puffin"
    report = sidecar.extract([str(data / "0.parquet")], target, encryption_keys=keys, **twice)
    assert report.engine == "spark"
    sealed = [unit for unit in report.units if (unit.column, unit.kind) == ("k", "bloom")]
    assert {unit.way for unit in sealed} == {"exact"}
    assert sidecar.verify(target, encryption_keys=keys).problems == []
    assert sidecar.verify(target).problems != []


@pytest.mark.parametrize("kind", [None, "orc", "parquet"])
def test_filters_are_converted_as_here(data: Path, tmp_path: Path, twice: Any, kind: Any) -> None:
    files = sorted(map(str, data.iterdir()))
    here = sidecar.convert(files, tmp_path / "here.puffin", as_=kind)
    there = sidecar.convert(files, tmp_path / "there.puffin", as_=kind, **twice)
    assert (here.engine, there.engine) == ("local", "spark")
    assert without(there) == without(here)
    merged = sidecar.convert([tmp_path / "there.puffin"], tmp_path / "again.puffin", **twice)
    assert (merged.engine, merged.engine_reason[:4]) == ("local", "only")


def totals(found: Any) -> Any:
    """What is true of all files, but not of the run."""
    return {name: found.to_dict()[name] for name in ("failed", "others", "size", "size_before", "ways")}


def test_new_files_are_whole_and_no_second_try_fails(data: Path, tmp_path: Path, twice: Any) -> None:
    here = sidecar.embed(f"{data}/*.parquet", into=str(tmp_path / "here"), bloom=["k", "s"], page_index=True)
    there = sidecar.embed(f"{data}/*.parquet", into=str(tmp_path / "there"), bloom=["k", "s"], page_index=True, **twice)
    assert there.engine == "spark"
    assert totals(there) == totals(here)
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["0.parquet", "1.parquet"]
    for path in (tmp_path / "there").iterdir():
        assert path.read_bytes() == (tmp_path / "here" / path.name).read_bytes()
    with pytest.raises(UsageError, match="the file exists already"):
        sidecar.embed(f"{data}/*.parquet", into=str(tmp_path / "there"), bloom=["k"], **twice)


def test_stripped_files_are_whole_and_no_second_try_fails(data: Path, tmp_path: Path, twice: Any) -> None:
    here = sidecar.strip(str(data), str(tmp_path / "here"))
    there = sidecar.strip(str(data), str(tmp_path / "there"), **twice)
    assert (here.engine, there.engine) == ("local", "spark")
    assert totals(there) == totals(here)
    names = ["0.parquet", "1.parquet", ORC.name]
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == names
    for name in names:
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_new_files_in_an_object_store(data: Path, tmp_path: Path, twice: Any) -> None:
    store = tmp_path / "store"
    store.mkdir()
    io = FolderIO({"folder": str(store)})
    for number in range(2):
        (store / "in").mkdir(exist_ok=True)
        shutil.copy(data / f"{number}.parquet", store / "in")
    paths = [f"folder://in/{number}.parquet" for number in range(2)]
    report = sidecar.embed(paths, into="folder://out", bloom=["k"], io=io, **twice)
    assert [file.target for file in report.files] == ["folder://out/0.parquet", "folder://out/1.parquet"]
    for number in range(2):
        assert pq.read_table(store / "out" / f"{number}.parquet").equals(pq.read_table(data / f"{number}.parquet"))
    (store / "out" / "1.parquet").write_bytes(b"somebody else's")
    (error,) = sidecar.embed(paths, into="folder://out", bloom=["k"], io=io, **twice).failed.values()
    assert isinstance(error, UsageError)
    assert str(error).startswith("the file exists already; file folder://out/1.parquet")
    assert (store / "out" / "1.parquet").read_bytes() == b"somebody else's"


def test_a_table_gets_one_successor_for_each_file(catalog: Any, twice: Any) -> None:
    table = create(catalog)
    rows = sorted(table.scan().to_arrow()["k"].to_pylist())
    sidecar.build(table, ["k"], engine="local")
    before = on_disk(table)
    report = sidecar.embed(table, bloom=["k", "s"], refresh=False, **twice)
    assert (report.engine, len(report.replaced)) == ("spark", 4)
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == rows
    assert all(filters_of(file) == {"k", "s"} for file in data_files(table))
    assert len(on_disk(table) - before) == 8  # of the lost tries too, which no snapshot names


def test_a_table_keeps_its_files_if_one_cannot_be_written(
    catalog: Any, twice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers delete what they wrote of the file that fails, and the driver deletes the others."""
    table = create(catalog)
    first = sorted(task.file.file_path for task in table.scan().plan_files())[1]
    embed_parquet = rewritten_files.embed_parquet

    def failing(source: Any, *rest: Any, **options: Any) -> Any:
        if source.name in first:
            raise StorageError("disk full", file=first)
        return embed_parquet(source, *rest, **options)

    monkeypatch.setattr(rewritten_files, "embed_parquet", failing)
    deleted: list[str] = []
    delete = type(table.io).delete
    monkeypatch.setattr(type(table.io), "delete", lambda io, path: (deleted.append(path), delete(io, path))[1])
    with pytest.raises(StorageError, match="disk full"):
        sidecar.embed(table, bloom=["k"], **twice)
    assert len([path for path in deleted if path != first]) >= 3
    assert len(table.refresh().snapshots()) == 4


def test_a_tables_values_are_looked_up_as_here(catalog: Any, twice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.planning.verify_values.TASK_BYTES", 1)
    table = create(catalog)
    sidecar.build(table, ["k", "s"], kinds=["bloom", "page-index"], engine="local")
    here, there = sidecar.verify(table, data=True), sidecar.verify(table, data=True, **twice)
    assert without(there) == without(here)
    assert (here.engine, there.engine, there.problems) == ("local", "spark", [])
    assert there.looked_up is not None
    assert (there.looked_up.units, there.looked_up.values > 1000, there.looked_up.indexes) == (4, True, 8)


def test_a_file_that_the_sidecar_denies_is_a_problem_of_its_task(
    catalog: Any, twice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.planning.verify_values.TASK_BYTES", 1)
    table = create(catalog, files=2)
    sidecar.build(table, ["k"], engine="local")
    one, other = sorted(on_disk(table))
    data = one.read_bytes()
    changed = pq.read_table(other)
    pq.write_table(changed, one)  # of other length: not what the sidecar lists
    here = sidecar.verify(table, data=True).problems
    assert sidecar.verify(table, data=True, **twice).problems == here
    assert here
    one.write_bytes(data)


def test_work_that_cannot_be_sent_says_so(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    io = FolderIO({"folder": str(data)})
    io.lock = (item for item in ())  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"the work cannot be sent to Spark's workers: TypeError.*engine 'local'"):
        sidecar.verify(["folder://0.parquet"], io=io, data=True, spark=object())


def test_damage_is_still_found(data: Path, tmp_path: Path, twice: Any) -> None:
    """A file that extract cannot read is in ``failed``; the indexes of the other are at the target."""
    whole = (data / "1.parquet").read_bytes()
    (data / "1.parquet").write_bytes(whole[: len(whole) // 2])
    report = sidecar.extract(sorted(map(str, data.iterdir())), tmp_path / "new.puffin", **twice)
    assert [(path, type(error)) for path, error in report.failed.items()] == [
        (str(data / "1.parquet"), DamagedFileError)
    ]
    assert str(data / "0.parquet") in report.files
    assert sidecar.verify(tmp_path / "new.puffin", against=report.files).ok
