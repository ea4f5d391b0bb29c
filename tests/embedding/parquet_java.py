"""parquet-java as an oracle: what it finds, believes and uses of a file's indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class ParquetJava:
    """The parts of parquet-java that find, believe and use indexes."""

    def __init__(self, jvm: Any) -> None:
        self.jvm = jvm
        self.hadoop = self.jvm.org.apache.parquet.hadoop
        self.predicates = self.jvm.org.apache.parquet.filter2.predicate.FilterApi

    def open(self, path: Path, predicate: Any = None, keys: Any = None, **uses: bool) -> Any:
        """A ParquetFileReader; with a predicate, by the statistics, dictionaries and indexes in ``uses`` alone.

        ``keys`` are its FileDecryptionProperties, of an encrypted file.
        """
        where = self.jvm.org.apache.hadoop.fs.Path(str(path))
        file = self.hadoop.util.HadoopInputFile.fromPath(
            where, self.jvm.org.apache.hadoop.conf.Configuration()
        )
        builder = self.jvm.org.apache.parquet.ParquetReadOptions.builder()
        if keys is not None:
            builder = builder.withDecryption(keys)
        if predicate is not None:
            builder = builder.withRecordFilter(
                self.jvm.org.apache.parquet.filter2.compat.FilterCompat.get(predicate)
            )
        for name in ("useStatsFilter", "useDictionaryFilter", "useBloomFilter", "useColumnIndexFilter"):
            builder = getattr(builder, name)(uses.get(name, False))
        return self.hadoop.ParquetFileReader.open(file, builder.build())

    def equals(self, column: str, value: int | str) -> Any:
        if isinstance(value, str):
            binary = self.jvm.org.apache.parquet.io.api.Binary.fromString(value)
            return self.predicates.eq(self.predicates.binaryColumn(column), binary)
        assert abs(value) >= 2**31, "py4j would make an Integer of it"
        return self.predicates.eq(self.predicates.longColumn(column), value)

    def row_groups(self, path: Path, predicate: Any, keys: Any = None, **uses: bool) -> int:
        """How many row groups are left."""
        reader = self.open(path, predicate, keys, **uses)
        try:
            return int(reader.getRowGroups().size())
        finally:
            reader.close()

    def rows(self, path: Path, predicate: Any, keys: Any = None) -> int:
        """How many rows are left by the page indexes."""
        reader = self.open(path, predicate, keys, useColumnIndexFilter=True)
        try:
            return int(reader.getFilteredRecordCount())
        finally:
            reader.close()
