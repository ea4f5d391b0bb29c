"""Java, and jars that are downloaded once, by the Ivy that is in Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from scripts.servers.processes import ServerError

DOWNLOADED = Path.home() / ".ivy2.5.2"
"""Where Spark keeps the packages that it has downloaded."""
MODULE = """
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="sidecar" module="{name}"/>
  <dependencies defaultconf="default->default">{dependencies}</dependencies>
</ivy-module>
"""
DOWNLOAD_SECONDS = 300


def java(tool: str = "java") -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / tool) if home else shutil.which(tool) or tool


def spark_jars() -> Path:
    """The folder of Spark's jars.

    Raises:
        ServerError: if pyspark is not installed.
    """
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ServerError("pyspark is not installed: pip install 'lakehouse-sidecar[spark]'")
    return Path(found.origin).parent / "jars"


def downloaded(name: str, dependencies: str) -> Path:
    """The folder ``name`` of the jars that ``dependencies`` names, in Ivy's XML, and of those that these need.

    Raises:
        ServerError: if they cannot be downloaded.
    """
    folder = DOWNLOADED / name
    if folder.is_dir():
        return folder
    (ivy,) = spark_jars().glob("ivy-*.jar")
    partial = folder.with_name(f"{name}.{os.getpid()}")
    partial.mkdir(parents=True)
    (partial / "ivy.xml").write_text(MODULE.format(name=name, dependencies=dependencies))
    files = f"{partial}/[artifact]-[revision](-[classifier]).[ext]"
    home = [f"-Divy.default.ivy.user.dir={DOWNLOADED}", f"-Divy.cache.dir={DOWNLOADED}/cache"]
    options = ["-ivy", str(partial / "ivy.xml"), "-types", "jar", "bundle", "-retrieve", files, "-warn"]
    try:
        command = [java(), *home, "-jar", str(ivy), *options]
        subprocess.run(command, check=True, timeout=DOWNLOAD_SECONDS, stdout=subprocess.DEVNULL)
    except (subprocess.SubprocessError, OSError) as error:
        shutil.rmtree(partial)
        raise ServerError(f"the jars of {name} cannot be downloaded: {type(error).__name__}") from error
    partial.rename(folder)
    return folder
