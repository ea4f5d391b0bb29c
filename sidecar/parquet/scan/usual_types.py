"""Shows a Parquet file without Arrow's view types, so that pyarrow reads plain strings, binaries and lists.

Views exist only in Arrow, not in the pages. Writers keep their Arrow schema in the footer, under ``ARROW:schema``, and
Arrow readers give the columns its types. Few pyarrow functions support views. With a changed schema in the footer,
the same pages are read as the usual types.
"""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

from sidecar.parquet.footer import MAGIC, Footer, read_footer
from sidecar.parquet.scan.schema_parts import ARROW_SCHEMA, has_views, without_views
from sidecar.parquet.thrift import BINARY, LIST, STRUCT, Items, Struct, encode_struct
from sidecar.storage.source import Source, WrappingSource, check_range

_KEY_VALUES = 5


def usual_footer(footer: Footer) -> bytes:
    """Return the Thrift bytes of the footer, with its Arrow schema changed to types without views."""
    schema = _arrow_schema(footer)
    if schema is None or not any(map(has_views, schema.types)):
        return footer.raw
    usual = pa.schema(map(without_views, schema), schema.metadata).serialize()
    text = base64.b64encode(usual.to_pybytes())
    pairs = footer.metadata.structs(_KEY_VALUES) or []
    changed = [Struct(pair.fields | {2: (BINARY, text)}) if pair.text(1) == ARROW_SCHEMA else pair for pair in pairs]
    fields = footer.metadata.fields | {_KEY_VALUES: (LIST, Items(STRUCT, changed))}
    return encode_struct(Struct(fields))


def _arrow_schema(footer: Footer) -> Any | None:
    """Return the Arrow schema that the writer kept in the footer; ``None`` if it is missing or cannot be read."""
    try:
        kept = base64.b64decode(footer.key_value.get(ARROW_SCHEMA, ""), validate=True)
        return pa.ipc.read_schema(pa.py_buffer(kept)) if kept else None
    except (pa.ArrowException, OSError, ValueError):
        return None


def with_usual_types(source: Source) -> Source:
    """Return the file as a source without views; ``source`` itself if it has none. Raises as :func:`read_footer`."""
    footer = read_footer(source)
    usual = usual_footer(footer)
    return source if usual == footer.raw else _OtherFooter(source, footer.offset, usual)


class _OtherFooter(WrappingSource):
    """A file whose footer is replaced. Threads may share it if they may share ``inner``, which :meth:`close` closes."""

    def __init__(self, inner: Source, offset: int, footer: bytes) -> None:
        super().__init__(inner)
        self._offset = offset
        self._end = footer + len(footer).to_bytes(4, "little") + MAGIC

    @property
    def size(self) -> int:
        """Length in bytes with the new footer."""
        return self._offset + len(self._end)

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`Source.read`."""
        check_range(self.name, self.size, offset, length)
        below = self.inner.read(offset, min(length, self._offset - offset)) if offset < self._offset else b""
        start = max(offset - self._offset, 0)
        return below + self._end[start : start + length - len(below)]
