"""Makes a token and a certificate for the trial of compose.yaml: keys.py FOLDER."""

from __future__ import annotations

import os
import secrets
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

USER = 10001
"""The user of the image, who alone may read the key."""


def main(folder: Path, host: str = "sidecar") -> None:
    """Write ``token``, ``cert.pem`` and ``key.pem``, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "token").exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host), x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    _write(folder / "cert.pem", certificate.public_bytes(serialization.Encoding.PEM))
    _write(
        folder / "key.pem",
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
    )
    _write(folder / "token", secrets.token_urlsafe(32).encode())


def _write(path: Path, data: bytes) -> None:
    path.touch(0o600)
    path.write_bytes(data)
    if os.geteuid() == 0:
        os.chown(path, USER, USER)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
