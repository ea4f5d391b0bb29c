"""Foreign readers of ORC files, asked how much of a file their predicate push-down leaves over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyorc
from pyorc.enums import TypeKind
from pyorc.predicates import PredicateColumn


class OrcJava:
    """ORC Java's reader, out of the jars that Spark brings along."""

    def __init__(self, jvm: Any, gateway: Any) -> None:
        self.jvm = jvm
        self.gateway = gateway
        self.configuration = jvm.org.apache.hadoop.conf.Configuration()
        literals = jvm.java.lang.Class.forName("org.apache.hadoop.hive.ql.io.sarg.PredicateLeaf$Type")
        self.literals = {one.name(): one for one in literals.getEnumConstants()}

    def open(self, path: Path) -> Any:
        """A Reader."""
        options = self.jvm.org.apache.orc.OrcFile.readerOptions(self.configuration)
        return self.jvm.org.apache.orc.OrcFile.createReader(self.jvm.org.apache.hadoop.fs.Path(str(path)), options)

    def rows(self, path: Path, column: str = "", kind: str = "LONG", value: Any = None) -> int:
        """Rows of the row groups that ``column = value`` leaves over; of all, without a column.

        The statistics, too, exclude row groups.
        """
        reader = self.open(path)
        options = reader.options()
        if column:
            options = options.searchArgument(self.equals(column, kind, value), self._names(column))
        rows = reader.rows(options)
        try:
            batch = reader.getSchema().createRowBatch()
            count = 0
            while rows.nextBatch(batch):
                count += batch.count()
            return count
        finally:
            rows.close()
            reader.close()

    def filters(self, path: Path) -> list[dict[int, list[tuple[int, bytes]]]]:
        """k and bitset of every filter that Java finds: by stripe, column id and row group."""
        reader = self.open(path)
        rows = reader.rows()
        columns = reader.getSchema().getMaximumId() + 1
        every = self.gateway.new_array(self.jvm.boolean, columns)
        for column in range(columns):
            every[column] = True
        stripes = []
        for stripe in range(reader.getStripes().size()):
            found = rows.readRowIndex(stripe, every, every).getBloomFilterIndex()
            stripes.append(
                {
                    column: [
                        (one.getNumHashFunctions(), bytes(one.getUtf8Bitset().toByteArray()))
                        for one in found[column].getBloomFilterList()
                    ]
                    for column in range(columns)
                    if found[column] is not None
                }
            )
        rows.close()
        reader.close()
        return stripes

    def equals(self, column: str, kind: str, value: Any) -> Any:
        """``column = value`` with a literal of the kind ``LONG``, ``STRING``, ``FLOAT``, ..."""
        factory = self.jvm.org.apache.hadoop.hive.ql.io.sarg.SearchArgumentFactory
        literal = self.literals[kind]
        builder = factory.newBuilder().startAnd()
        if kind == "LONG":  # py4j would make an Integer of a small one
            longs = self.jvm.java.util.stream.LongStream.of(value).boxed().toArray()
            builder = getattr(builder, "in")(column, literal, longs)
        else:
            builder = builder.equals(column, literal, value)
        return builder.end().build()

    def _names(self, column: str) -> Any:
        names: Sequence[str | None] = (None, column)
        array = self.gateway.new_array(self.jvm.java.lang.String, len(names))
        for at, name in enumerate(names):
            array[at] = name
        return array


class OrcCpp:
    """The C++ reader, as PyORC brings it along."""

    def rows(self, path: Path, column: str = "", kind: TypeKind = TypeKind.LONG, value: Any = None) -> int:
        """As :meth:`OrcJava.rows`."""
        predicate = PredicateColumn(kind, column) == value if column else None
        with path.open("rb") as file:
            return sum(1 for _ in pyorc.Reader(file, predicate=predicate))
