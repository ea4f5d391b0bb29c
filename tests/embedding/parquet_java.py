"""parquet-java as an oracle: what it finds, believes and uses of a file's indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SEPARATOR = "\u2028"
"""No character of ISO 8859-1, as which bytes are sent as text."""
READER = "org.apache.parquet.hadoop.ParquetFileReader"
CHUNK = "org.apache.parquet.hadoop.metadata.ColumnChunkMetaData"


class ParquetJava:
    """The parts of parquet-java that find, believe and use indexes."""

    def __init__(self, jvm: Any) -> None:
        self.jvm = jvm
        self.configuration = jvm.org.apache.hadoop.conf.Configuration()
        self.hadoop = self.jvm.org.apache.parquet.hadoop
        self.predicates = self.jvm.org.apache.parquet.filter2.predicate.FilterApi

    def open(self, path: Path, predicate: Any = None, keys: Any = None, **uses: bool) -> Any:
        """A ParquetFileReader; with a predicate, by the statistics, dictionaries and indexes in ``uses`` alone.

        ``keys`` are its FileDecryptionProperties, of an encrypted file.
        """
        where = self.jvm.org.apache.hadoop.fs.Path(str(path))
        file = self.hadoop.util.HadoopInputFile.fromPath(where, self.configuration)
        builder = self.jvm.org.apache.parquet.ParquetReadOptions.builder()
        if keys is not None:
            builder = builder.withDecryption(keys)
        if predicate is not None:
            builder = builder.withRecordFilter(self.jvm.org.apache.parquet.filter2.compat.FilterCompat.get(predicate))
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

    def texts(self, items: Any, *functions: Any) -> list[str]:
        """What Java functions, one after the other, make of each item, as text; the loop runs inside the JVM."""
        if items.isEmpty():
            return []
        stream = items.stream()
        for function in (*functions, self._static("java.lang.String", "valueOf", "java.lang.Object")):
            stream = stream.map(function)
        joined = stream.collect(self.jvm.java.util.stream.Collectors.joining(SEPARATOR))
        return str(joined).split(SEPARATOR)

    def offset_indexes(self, reader: Any, block: Any) -> list[list[tuple[int, ...]]]:
        """Of each chunk of a row group its pages: offset, compressed size, first row; none without an index."""
        result = "org.apache.parquet.internal.column.columnindex.OffsetIndex"
        found = self.texts(block.getColumns(), self._bound(reader, READER, "readOffsetIndex", result, CHUNK))
        lines = [[line.split() for line in text.splitlines() if line.startswith("page-")] for text in found]
        return [[tuple(map(int, words[1:4])) for words in pages] for pages in lines]

    def count_filters(self, reader: Any, block: Any) -> int:
        """How many chunks of a row group have a Bloom filter."""
        result = "org.apache.parquet.column.values.bloomfilter.BloomFilter"
        found = self.texts(block.getColumns(), self._bound(reader, READER, "readBloomFilter", result, CHUNK))
        return len(found) - found.count("null")

    def bytes_of(self, buffers: Any) -> list[bytes]:
        """The bytes that each ByteBuffer of a list has left."""
        charset = self.jvm.java.nio.charset.StandardCharsets.ISO_8859_1
        types = ("java.nio.CharBuffer", "java.nio.ByteBuffer")
        decode = self._bound(charset, "java.nio.charset.Charset", "decode", *types)
        return [text.encode("latin-1") for text in self.texts(buffers, decode)]

    def _bound(self, receiver: Any, owner: str, method: str, result: str, argument: str) -> Any:
        """A method of an object as a java.util.function.Function."""
        of, kind = self.jvm.java.lang.Class.forName, self.jvm.java.lang.invoke.MethodType.methodType
        lookup = self.jvm.java.lang.invoke.MethodHandles.publicLookup()
        return self._function(lookup.findVirtual(of(owner), method, kind(of(result), of(argument))).bindTo(receiver))

    def _static(self, owner: str, method: str, argument: str) -> Any:
        """A static method that returns its own class, as a java.util.function.Function."""
        of, kind = self.jvm.java.lang.Class.forName, self.jvm.java.lang.invoke.MethodType.methodType
        lookup = self.jvm.java.lang.invoke.MethodHandles.publicLookup()
        return self._function(lookup.findStatic(of(owner), method, kind(of(owner), of(argument))))

    def _function(self, handle: Any) -> Any:
        interface = self.jvm.java.lang.Class.forName("java.util.function.Function")
        return self.jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(interface, handle)
