"""Commands that write files and whose process is killed, and what must be true of the folder afterwards."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from shutil import copy
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import sidecar
from sidecar.cli import rows as written_rows
from sidecar.crypto.key_material import material_path
from sidecar.errors import UsageError
from sidecar.storage import target, temporary
from sidecar.storage.temporary import is_temporary
from tests.conversion.cases import DATA, indexed
from tests.embedding.encryption_matrix import Kind, Kms, write_by_arrow
from tests.embedding.encryption_matrix import rows as secret_rows
from tests.object_store import open_store

Files = Callable[[Path, Path], object]
"""Reads files of the first folder, and writes files to the second one."""

ENCRYPTED = Kind("arrow", "encrypted", "AES_GCM_V1", 32, "none", "mixed")
OLDER_ORC = DATA.parent / "orc" / "apache_over1k_bloom.orc"
OLDER = b"an older file of this name"


def keys() -> Any:
    return sidecar.EncryptionKeys(sidecar.KmsKeys(Kms, None))


def embed(source: str, name: str, **options: Any) -> Files:
    return lambda given, new: (
        sidecar.embed(given / source, into=new / name, bloom=["k"], reuse="never", threads=1, **options).only
    )


def convert(sources: list[str], name: str, onto: str | None = None, **options: Any) -> Files:
    return lambda given, new: sidecar.convert(
        [given / source for source in sources], new / name, onto=onto and given / onto, **options
    )


def sources_of(given: Path) -> list[str]:
    return [str(given / "lake" / f"part-{number}.parquet") for number in (1, 2)]


def scan_to(ending: str) -> Files:
    def write(given: Path, new: Path) -> None:
        with pq.ParquetFile(given / "plain-1.parquet") as file:
            batches = file.iter_batches(20, columns=["k"])
            rows = pa.RecordBatchReader.from_batches(pa.schema([("k", pa.int64())]), batches)
            written_rows.write_rows(rows, new / f"rows{ending}")

    return write


def report(given: Path, new: Path) -> None:
    sidecar.report(open_store(given).load_table("db.t"), new / "page.html", advice=False)


class FileCommand:
    """A command that writes new files.

    ``files``: what it does. ``replaces``: the name of a file that is there before, and that it replaces. ``into``:
    whether it writes many files into a folder.
    """

    def __init__(self, files: Files, replaces: str | None = None, into: bool = False) -> None:
        self.files = files
        self.replaces = replaces
        self.into = into
        self._expected: dict[str, str | None] = {}
        self._given: dict[str, str] = {}

    def prepare(self, place: Path) -> None:
        """Make the sources, and learn from two runs what the command writes, and whether always the same bytes."""
        prepare_sources(place)
        self._given = digests(place / "given")
        found = []
        for _ in range(2):
            (place / "new").mkdir()
            self.run(place)
            found.append(digests(place / "new"))
            empty(place / "new")
        assert found[0].keys() == found[1].keys()
        self._expected = {name: one if found[1][name] == one else None for name, one in found[0].items()}
        (place / "new").mkdir()
        if self.replaces:
            (place / "new" / self.replaces).write_bytes(OLDER)

    def run(self, place: Path) -> None:
        """Run the operation. The test kills the process that does."""
        with spools_in(place / "spools"):
            self.files(place / "given", place / "new")

    def check(self, place: Path) -> None:
        """Sources are untouched, new files are whole, a next run ends well, and one a day later leaves nothing over."""
        assert digests(place / "given") == self._given, "a source was changed"
        assert list((place / "spools").iterdir()) == []
        there = self._check_new(place)
        self._run_again(place, there)
        there = self._check_new(place)
        assert there == self._expected.keys(), "the next run did not write everything"
        a_day_later(place / "new")
        left = [place / "new" / name for name in digests(place / "new").keys() - self._expected.keys()]
        assert all(is_temporary(path.name) and is_readable(path) for path in left), "a file is left over"

    def _check_new(self, place: Path) -> set[str]:
        """Return the new files, each of which is whole; other files have temporary names."""
        found = {name: one for name, one in digests(place / "new").items() if not is_temporary(name)}
        for name, digest in found.items():
            if self.replaces == name and digest == sha256(OLDER).hexdigest():
                continue
            assert name in self._expected, f"{name} is left over"
            assert digest == (self._expected[name] or digest), f"{name} has other bytes"
            if self._expected[name] is None:
                check_opens(place / "new" / name)
        return set(found)

    def _run_again(self, place: Path, there: set[str]) -> None:
        """The same command again: it ends well, or says that everything is there.

        One that writes into a folder names a file that is there, and ends well without those that are.
        """
        taken = self._file_in_the_way(place)
        if taken is not None:
            assert str(Path(taken).relative_to(place / "new")) in there
            if there != self._expected.keys():
                assert self.into, f"{taken} is in the way"
                empty(place / "new")
                (place / "new").mkdir()
                self.run(place)

    def _file_in_the_way(self, place: Path) -> str | None:
        """Run, and return the file that is there already; ``None`` if the run ended well."""
        try:
            self.run(place)
        except UsageError as error:
            return error.file
        return None


def prepare_sources(place: Path) -> None:
    """Files of all formats, a sidecar of two of them, an encrypted file with its key material, and a small table."""
    given = place / "given"
    (given / "lake").mkdir(parents=True)
    (place / "spools").mkdir()
    indexed(given, 1, 60)
    for number in (1, 2):
        indexed(given / "lake", number, 60)
        (given / "lake" / f"plain-{number}.parquet").unlink()
    rows = pa.table({"k": range(300), "s": [f"text {n % 70}" for n in range(300)]})
    orc.write_table(rows, given / "twin.orc", bloom_filter_columns=[0, 1])
    pq.write_table(rows, given / "bare.parquet", row_group_size=100)
    sidecar.embed(given / "bare.parquet", into=given / "same.parquet", bloom=["k", "s"])
    copy(OLDER_ORC, given / "older.orc")
    copy(DATA / "apache_bloom_filter.bin", given / "old.bin")
    pq.write_table(pa.table({"s": ["hello", "parquet", "bloom", "filter"]}), given / "values.parquet")
    sidecar.extract([given / "lake" / "part-1.parquet"], given / "one.puffin")
    sidecar.extract(sources_of(given), given / "both.puffin")
    sidecar.extract([given / "twin.orc"], given / "orc.puffin")
    (given / "sealed").mkdir()
    write_by_arrow(ENCRYPTED, given / "sealed" / "k.parquet", secret_rows().slice(0, 100), outside=True)
    table = open_store(given).create_table("db.t", rows.schema)
    table.append(rows)
    sidecar.build(table, ["k"], engine="local")


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file, by its path in the folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


def empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


@contextmanager
def spools_in(folder: Path) -> Iterator[None]:
    """Nameless and other temporary files of the process are in this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield


def check_opens(path: Path) -> None:
    """The file is whole, if its bytes are not the same each time."""
    if path.suffix == ".html":
        assert path.read_text().endswith("</html>\n")
    elif path.suffix == ".json":
        assert path.read_bytes().endswith(b"}")
    elif path.parts[-2:] == ("new", "sealed.parquet"):
        assert Path(material_path(str(path))).exists(), "an encrypted file without its key material"
        assert sidecar.verify(path, data=True, encryption_keys=keys()).problems == []
    else:
        assert sidecar.verify(path).problems == []


def is_readable(path: Path) -> bool:
    """Whether a file with a temporary name is whole: its run was killed just before it would have got its own name."""
    if ".orc" in path.name:
        return orc.ORCFile(path).nrows > 0
    return path.read_bytes().endswith((b"PAR1", b"PARE"))


def a_day_later(folder: Path) -> None:
    """A day passes, and then a command of another process writes a file into each folder that has a temporary one."""
    left = [path for path in folder.rglob("*") if is_temporary(path.name)]
    for path in left:
        os.utime(path, (time.time() - temporary.ABANDONED_AFTER - 1,) * 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(temporary, "_cleared", temporary._Cleared())
        for parent in {path.parent for path in left}:
            with target.create_target(str(parent / "later")):
                pass
            (parent / "later").unlink()


FILES = {
    "embed FILE": [
        FileCommand(embed("plain-1.parquet", "new.parquet", page_index=True)),
        FileCommand(embed("plain-1.parquet", "new.parquet", placement="row-group")),
        FileCommand(
            lambda given, new: sidecar.embed(given / "older.orc", into=new / "new.orc", bloom=["_col0"], threads=1).only
        ),
        FileCommand(
            lambda given, new: (
                sidecar.embed(
                    given / "sealed" / "k.parquet",
                    into=new / "sealed.parquet",
                    bloom=["k"],
                    encryption_keys=keys(),
                    threads=1,
                ).only
            )
        ),
    ],
    "embed --into": [
        FileCommand(
            lambda given, new: sidecar.embed(str(given / "lake"), into=str(new / "deep"), bloom=["k"], threads=1),
            into=True,
        ),
    ],
    "embed --from": [
        FileCommand(
            lambda given, new: (
                sidecar.embed(sources_of(given)[0], into=new / "a.parquet", from_=given / "one.puffin").only
            )
        ),
        FileCommand(
            lambda given, new: sidecar.embed(given / "twin.orc", into=new / "new.orc", from_=given / "orc.puffin").only
        ),
    ],
    "embed --from --into": [
        FileCommand(
            lambda given, new: sidecar.embed(sources_of(given), into=new / "deep", from_=given / "both.puffin"),
            into=True,
        ),
    ],
    "strip FILE": [
        FileCommand(lambda given, new: sidecar.strip(given / "lake/part-1.parquet", new / "new.parquet").only),
        FileCommand(lambda given, new: sidecar.strip(given / "twin.orc", new / "new.orc").only),
    ],
    "strip --into": [FileCommand(lambda given, new: sidecar.strip(str(given / "lake"), str(new / "deep")), into=True)],
    "extract": [FileCommand(lambda given, new: sidecar.extract(sources_of(given), new / "new.puffin"))],
    "convert": [
        FileCommand(convert(["lake/part-1.parquet", "lake/part-2.parquet"], "new.puffin")),
        FileCommand(convert(["one.puffin"], "new.puffin", fpp=0.05)),
        FileCommand(convert(["one.puffin"], "new.parquet", onto="lake/part-1.parquet")),
        FileCommand(convert(["lake/part-1.parquet"], "new.parquet", fpp=0.2)),
        FileCommand(convert(["older.orc"], "new.orc")),
        FileCommand(convert(["twin.orc"], "new.parquet", onto="bare.parquet")),
        FileCommand(convert(["same.parquet"], "new.orc", onto="twin.orc")),
        FileCommand(
            lambda given, new: sidecar.convert(
                given / "old.bin", new / "new.bin", onto=given / "values.parquet", column="s"
            )
        ),
    ],
    "report": [FileCommand(report)],
    "scan --output": [
        FileCommand(scan_to(ending), replaces=f"rows{ending}") for ending in (".parquet", ".arrow", ".csv", ".jsonl")
    ],
}
"""The rows of the grid about files, each with the ways that the command has."""
