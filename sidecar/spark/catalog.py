"""Catalogs of a Spark session as catalogs of pyiceberg: whatever the session opens, all verbs take.

Only this room knows the difference. A :class:`SparkCatalog` loads a table's metadata through the session's JVM, and
commits there:

- pyiceberg's requirements and updates go through Iceberg's own parsers, onto the version of the metadata that Java
  holds, and ``commit(base, updated)`` replaces this version and no other. Java knows the whole metadata, so nothing is
  lost that pyiceberg does not know. Iceberg's ``updateStatistics`` would set an entry whatever stands there by now.
- Hadoop, JDBC and Hive catalogs compare and swap the version. So the entries in it are compared with those that the
  caller has seen: then the entry that was merged is the entry that is replaced. A REST server compares nothing; what
  a commit replaced is looked for in the metadata log afterwards, as for all catalogs.
- A session remembers tables. A refresh of a remembered table that another session has dropped and made anew gives the
  old one, and a commit would put it in the place of the new one. So the table is forgotten before each load.

A session of Spark Connect has no JVM to reach. Its :class:`ConnectCatalog` reads the newest metadata file, of which
Spark tells the place, and commits nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import RemoveStatisticsUpdate, SetStatisticsUpdate

from sidecar.dependencies.pyspark import gateway_of, java_context_of, java_session_of, jvm_of
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError, redact
from sidecar.iceberg.engine_catalog import EngineCatalog
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.partial_loading import PartlyLoaded, load_file_partly, loadable_statistics, parse_metadata
from sidecar.iceberg.table_names import TableName, parts_of, shown_name
from sidecar.spark.jvm import ICEBERG, iceberg_class, is_remote, java_errors, java_texts
from sidecar.spark.local_versions import commit_by_link
from sidecar.storage.locations import local_path

if TYPE_CHECKING:
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier

log = logging.getLogger(__name__)

_SETTING = "spark.sql.catalog."
_REFUSED_TYPES = ("variant", "geometry", "geography")
"""Types that pyiceberg 0.12 does not know, or not as Java spells them."""
_CONNECT = (
    "this session of Spark is remote (Spark Connect), so nothing can be committed through it: run it where the driver "
    "is, or give sidecar the catalog itself"
)


def open_spark_catalog(spark: Any, name: str, **properties: str) -> EngineCatalog:
    """Return a catalog of a session. ``properties`` go to the FileIO of its tables.

    Raises :class:`UsageError` if the session has no such catalog of Iceberg tables.
    """
    known = known_catalogs(spark)
    if name not in known:
        raise UsageError(
            f"the Spark session has no catalog '{name}' of Iceberg tables",
            hint=f"Its configuration has: {', '.join(known) or 'none'}. A name begins with one of them; others are "
            "described by settings spark.sql.catalog.NAME.",
        )
    kind = ConnectCatalog if is_remote(spark) else SparkCatalog
    return kind(spark, name, **properties)


def in_session(spark: Any, text: str) -> tuple[str, str]:
    """Return the catalog of a name or a glob as Spark takes it, and the name in the catalog.

    Without a catalog it is in the session's current one, and without a namespace in the current one of that. Raises
    :class:`UsageError`.
    """
    parts = parts_of(text)
    is_remote(spark)
    if len(parts) > 1 and parts[0].text in known_catalogs(spark):
        return parts[0].text, ".".join(part.typed for part in parts[1:])
    if len(parts) == 1:
        text = f"{spark.catalog.currentDatabase()}.{text}"
    return spark.catalog.currentCatalog(), text


def known_catalogs(spark: Any) -> list[str]:
    """Return the names of the catalogs that a session's configuration has."""
    is_remote(spark)
    names = (row[0].removeprefix(_SETTING) for row in spark.sql("SET").collect() if row[0].startswith(_SETTING))
    return sorted(name for name in names if "." not in name)


def _settings_of(spark: Any, name: str) -> dict[str, str]:
    """Return what the configuration says of a catalog, secrets too."""
    names = [row[0] for row in spark.sql("SET").collect() if row[0].startswith(f"{_SETTING}{name}.")]
    return {one: spark.conf.get(one) for one in names}  # SET itself hides some values


class SparkCatalog(EngineCatalog):
    """A catalog of a classic session, reached through the session's JVM."""

    def __init__(self, spark: Any, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.options = ("--spark-catalog", name)
        self._spark = spark
        self._warned: set[TableName] = set()
        try:
            with java_errors():
                self._java = self._class("spark.Spark3Util").loadIcebergCatalog(java_session_of(spark), name)
        except SidecarError:
            raise
        except Exception as error:
            reason = redact(str(error), _settings_of(spark, name))
            raise UsageError(f"'{name}' of the Spark session is no catalog of Iceberg tables: {reason}") from error

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table in its present version."""
        identifier = Catalog.identifier_to_tuple(identifier)
        java = self._java_table(identifier)
        current = java.operations().current()  # read now: what the session remembered is forgotten
        text, gone = self._loadable(identifier, current)
        return self._table(identifier, java, current, TableMetadataUtil.parse_raw(text), gone)

    def load_partly(self, identifier: Identifier) -> PartlyLoaded:
        """See :meth:`EngineCatalog.load_partly`."""
        java = self._java_table(identifier)
        return self._partly(identifier, java, java.operations().current())

    def _partly(self, identifier: Identifier, java: Any, current: Any) -> PartlyLoaded:
        text, gone = self._loadable(identifier, current)
        metadata, left = parse_metadata(json.loads(text))
        table = self._table(identifier, java, current, metadata, gone)
        table.left_out = left
        return table

    def _table(
        self, identifier: Identifier, java: Any, current: Any, metadata: TableMetadata, gone: tuple[str, ...]
    ) -> PartlyLoaded:
        location = current.metadataFileLocation() or f"{metadata.location}/metadata/unknown.metadata.json"
        table = PartlyLoaded(identifier, metadata, location, self._io(java.io(), metadata), self)
        table.left_out, table.columns_left_out = {}, gone
        return table

    def _class(self, name: str) -> Any:
        return iceberg_class(self._spark, name)

    def _java_table(self, identifier: Identifier) -> Any:
        is_remote(self._spark)
        with java_errors():
            name = self._class("catalog.TableIdentifier").of(java_texts(self._spark, identifier))
            self._java.invalidateTable(name)
            java = self._java.loadTable(name)
        if not is_instance_of(gateway_of(self._spark), java, f"{ICEBERG}.HasTableOperations"):
            raise NoSuchTableError(f"{shown_name(identifier)} is about another table: it is made of its metadata")
        return java

    def _loadable(self, identifier: Identifier, current: Any) -> tuple[str, tuple[str, ...]]:
        """Return the metadata as JSON without columns of types that pyiceberg refuses, and the names of these."""
        with java_errors():
            text = str(self._class("TableMetadataParser").toJson(current))
        if not any(f'"{kind}' in text for kind in _REFUSED_TYPES):
            return text, ()
        document = json.loads(text)
        gone: dict[str, None] = {}
        for schema in document["schemas"]:
            gone |= dict.fromkeys(one["name"] for one in schema["fields"] if not _is_readable(one["type"]))
            schema["fields"] = [one for one in schema["fields"] if _is_readable(one["type"])]
        if gone and identifier not in self._warned:
            self._warned.add(identifier)
            log.warning(
                f"{shown_name(identifier)}: {', '.join(gone)}: columns of types that pyiceberg does not know are left "
                "out; sidecar.spark_read has them"
            )
        return json.dumps(document), tuple(gone)

    def _io(self, java: Any, metadata: TableMetadata) -> FileIO:
        properties = {**dict(java.properties()), **self.properties}
        location = metadata.location
        if local_path(location) is not None:
            self._check_is_local(java, location)
        elif not _has_keys(location, properties):
            from sidecar.spark.jvm_files import JvmFileIO

            return JvmFileIO(self._spark, java, properties)
        region = {"s3.region": properties["client.region"]} if "client.region" in properties else {}
        # Spark takes no store from a table's own properties, whose writers could have keys sent to their server.
        return load_file_io({**region, **properties}, location)

    def _check_is_local(self, java: Any, location: str) -> None:
        """Raise :class:`UnsupportedFeatureError` for a path that has no scheme and is not on this machine."""
        if location.lower().startswith("file:"):
            return
        with java_errors():
            is_hadoop = java.getClass().getSimpleName() in ("HadoopFileIO", "ResolvingFileIO")
            settings = java.getConf() if is_hadoop else java_context_of(self._spark).hadoopConfiguration()
            path = jvm_of(self._spark).org.apache.hadoop.fs.Path(location)
            scheme = str(path.getFileSystem(settings).getUri().getScheme())
        if scheme != "file":
            raise UnsupportedFeatureError(
                f"the paths of the table have no scheme, and Spark looks for them on {scheme}:",
                file=location,
                hint=f"Give the warehouse of the catalog '{self.name}' with its scheme: {scheme}://...",
            )

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit changes to the table's present version, if the entries that they replace are those in ``table``."""
        identifier = table.name()
        java = self._java_table(identifier)
        operations = java.operations()
        base = operations.current()
        try:
            with java_errors():
                updated = self._updated(table, base, requirements, updates)
        except (OSError, ValueError) as error:
            raise BadRequestError(str(error)) from error  # nothing has been sent
        if updated.changes().size():
            with java_errors():
                if not commit_by_link(self._spark, java, base, updated):
                    operations.commit(base, updated)
        with java_errors():
            done = self._partly(identifier, java, operations.refresh())
        return CommitTableResponse.model_validate(
            {"metadata": done.metadata, "metadata-location": done.metadata_location}
        )

    def _updated(
        self, table: Table, base: Any, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
    ) -> Any:
        requirement_of = self._class("UpdateRequirementParser").fromJson
        update_of = self._class("MetadataUpdateParser").fromJson
        for requirement in requirements:
            requirement_of(requirement.model_dump_json()).validate(base)
        self._compare(table, base, updates)
        builder = self._class("TableMetadata").buildFrom(base)
        for update in updates:
            update_of(update.model_dump_json()).applyTo(builder)
        return builder.build()

    def _compare(self, table: Table, base: Any, updates: Sequence[TableUpdate]) -> None:
        """Raise :class:`CommitFailedException` if an entry that the updates change is not the one in ``table``."""
        changed = {one.snapshot_id for one in updates if isinstance(one, RemoveStatisticsUpdate)}
        changed |= {one.statistics.snapshot_id for one in updates if isinstance(one, SetStatisticsUpdate)}
        if not changed:
            return
        to_json = self._class("StatisticsFileParser").toJson
        standing: dict[int, list[Any]] = {}
        for entry in base.statisticsFiles():
            if (snapshot_id := int(entry.snapshotId())) in changed:
                found, _ = loadable_statistics([json.loads(to_json(entry))])
                standing.setdefault(snapshot_id, []).extend(found)
        seen = statistics_of(table)
        for snapshot_id in changed:
            if seen.get(snapshot_id, ()) != tuple(standing.get(snapshot_id, ())):
                raise CommitFailedException(f"the statistics of snapshot {snapshot_id} have changed")

    def table_exists(self, identifier: str | Identifier) -> bool:
        """Return whether the catalog has this Iceberg table."""
        try:
            self._java_table(Catalog.identifier_to_tuple(identifier))
        except NoSuchTableError:
            return False
        return True

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the Iceberg tables of a namespace."""
        parts = Catalog.identifier_to_tuple(namespace)
        with java_errors():
            found = self._java.listTables(self._class("catalog.Namespace").of(java_texts(self._spark, parts)))
            return [(*parts, str(one.name())) for one in found]

    def names_of_other_formats(self, namespace: Identifier) -> list[str]:
        """See :meth:`EngineCatalog.names_of_other_formats`."""
        own = {name for *_, name in self.list_tables(namespace)}
        return sorted({name for *_, name in _tables_of(self._spark, self.name, namespace)} - own)

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the namespaces in a namespace."""
        return _namespaces_of(self._spark, self.name, Catalog.identifier_to_tuple(namespace))

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        """Return whether there is a namespace."""
        return _is_namespace(self._spark, self.name, Catalog.identifier_to_tuple(namespace))


class ConnectCatalog(EngineCatalog):
    """A catalog of a session of Spark Connect: its tables can be read where Python reads their storage."""

    cannot_commit = _CONNECT

    def __init__(self, spark: Any, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.options = ("--spark-catalog", name)
        self._spark = spark

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table in its newest version."""
        return self.load_partly(Catalog.identifier_to_tuple(identifier))

    def load_partly(self, identifier: Identifier) -> PartlyLoaded:
        """See :meth:`EngineCatalog.load_partly`."""
        shown = _quoted((self.name, *identifier))
        with _missing(NoSuchTableError):
            versions = self._spark.sql(f"SELECT file FROM {shown}.metadata_log_entries").collect()
        found = load_file_partly(versions[-1].file, self.properties)
        table = PartlyLoaded(identifier, found.metadata, found.metadata_location, found.io, self)
        table.left_out = found.left_out
        return table

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Raise :class:`UnsupportedFeatureError`."""
        raise UnsupportedFeatureError(_CONNECT)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the tables of a namespace."""
        return _tables_of(self._spark, self.name, Catalog.identifier_to_tuple(namespace))

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the namespaces in a namespace."""
        return _namespaces_of(self._spark, self.name, Catalog.identifier_to_tuple(namespace))

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        """Return whether there is a namespace."""
        return _is_namespace(self._spark, self.name, Catalog.identifier_to_tuple(namespace))


def _is_readable(kind: str | Mapping[str, Any]) -> bool:
    """Return whether pyiceberg knows a type of a schema, with all types in it."""
    if isinstance(kind, str):
        return not kind.startswith(_REFUSED_TYPES)
    inner = [kind[name] for name in ("element", "key", "value") if name in kind]
    return all(map(_is_readable, [*inner, *(one["type"] for one in kind.get("fields", ()))]))


def _has_keys(location: str, properties: Mapping[str, str]) -> bool:
    """Return whether Python can open a store by what the catalog hands out: Iceberg's names of keys are pyiceberg's."""
    is_s3 = location.partition("://")[0] in ("s3", "s3a", "s3n")
    return is_s3 and "s3.access-key-id" in properties and properties.get("s3.remote-signing-enabled") != "true"


def _quoted(parts: Sequence[str]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


@contextmanager
def _missing(kind: type[Exception]) -> Iterator[None]:
    """Raise the error for a name that Spark does not find in the block."""
    try:
        yield
    except Exception as error:
        condition = getattr(error, "getCondition", lambda: None)()
        if condition in ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"):
            raise kind(str(error).splitlines()[0]) from error
        raise


def _tables_of(spark: Any, catalog: str, namespace: TableName) -> list[TableName]:
    with _missing(NoSuchNamespaceError):
        rows = spark.sql(f"SHOW TABLES IN {_quoted((catalog, *namespace))}").collect()
    return [(*namespace, row.tableName) for row in rows if not row.isTemporary]


def _namespaces_of(spark: Any, catalog: str, namespace: TableName) -> list[TableName]:
    with _missing(NoSuchNamespaceError):
        rows = spark.sql(f"SHOW NAMESPACES IN {_quoted((catalog, *namespace))}").collect()
    return [tuple(part.text for part in parts_of(row[0])) for row in rows]


def _is_namespace(spark: Any, catalog: str, namespace: TableName) -> bool:
    return bool(spark.catalog.databaseExists(_quoted((catalog, *namespace))))
