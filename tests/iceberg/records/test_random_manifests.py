"""Manifests of writers that nobody here has seen: pyiceberg, decoding and walking find the same entries."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.iceberg.manifests import entry_decoder, identity_of, read_manifest
from sidecar.iceberg.records.entries import EntryMaker, ListedDataFile, StoredRecords
from tests.iceberg.records.random_manifests import RandomManifest
from tests.iceberg.test_manifests import values


def written(folder: Path, made: RandomManifest, entries: int) -> ManifestFile:
    """The line of a manifest that is written into a folder."""
    path = folder / "manifest.avro"
    path.write_bytes(made.data(entries))
    return ManifestFile.from_args(
        manifest_path=str(path),
        manifest_length=path.stat().st_size,
        partition_spec_id=3,
        content=ManifestContent.DATA,
        sequence_number=0 if made.version == 1 else 17,
        min_sequence_number=0,
        added_snapshot_id=99,
    )


@pytest.mark.parametrize("seed", range(24))
def test_walking_finds_what_pyiceberg_finds(tmp_path: Path, seed: int) -> None:
    made = RandomManifest(random.Random(seed), 1 + seed % 2)
    line = written(tmp_path, made, 30)
    theirs = line.fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)
    contents = read_manifest(PyArrowFileIO(), line)
    assert [repr(values(one.entry)) for one in contents.entries] == [repr(values(entry)) for entry in theirs]
    assert [entry.status.value for entry in theirs] == made.statuses

    live = [at for at, entry in enumerate(theirs) if entry.status != ManifestEntryStatus.DELETED]
    identities = [identity_of(theirs[at]) for at in live]
    numbers = [(i.file_size, i.record_count, line.partition_spec_id, *i[3:]) for i in identities]
    records = [contents.entries[at].raw for at in live]
    stored = StoredRecords(records, [i.path for i in identities], np.array(numbers, np.int64).reshape(-1, 5))
    maker = EntryMaker(entry_decoder(contents.avro_schema), stored, lambda file: True)
    found = maker.entries(slice(0, len(records)), line)
    assert len(found) == len(live) > 10
    for at, (_, entry) in zip(live, found, strict=True):
        assert isinstance(entry.data_file, ListedDataFile)
        assert repr(values(entry)).replace("ListedDataFile", "DataFile") == repr(values(theirs[at]))
        assert entry.data_file.content == theirs[at].data_file.content
        for name in ("file_path", "file_format", "partition", "record_count", "file_size_in_bytes"):
            assert repr(getattr(entry.data_file, name)) == repr(getattr(theirs[at].data_file, name)), name


def test_a_content_that_is_null_is_not_taken_for_data(tmp_path: Path) -> None:
    """pyiceberg refuses it, so the file must not be decoded when a plan has begun."""
    made = RandomManifest(random.Random(1), 2)
    (content,) = [one for one in made.file_fields if one["name"] == "content"]
    content["type"] = ["null", "int"]
    made.known = {"content": None}
    line = written(tmp_path, made, 1)
    with pytest.raises(DamagedFileError):
        read_manifest(PyArrowFileIO(), line)
    decoder, raw = entry_decoder(json.dumps(made.schema)), made.records[0]
    with pytest.raises(DamagedFileError):
        decoder.decode(raw, line)
    stored = StoredRecords([raw], [""], np.zeros((1, 5), np.int64))
    with pytest.raises(UnsupportedFeatureError):
        EntryMaker(decoder, stored, lambda file: True)
