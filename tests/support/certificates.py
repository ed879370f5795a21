"""Keys and certificates for 127.0.0.1, made by openssl: NAME.key and NAME.crt in a folder, both PEM."""

import subprocess
from pathlib import Path

_DAYS = "30"


def authority(folder: Path, name: str) -> None:
    """Make somebody who signs."""
    _key(folder, name, "-x509", "-days", _DAYS, "-out", f"{name}.crt")


def signed(folder: Path, name: str, ca: str) -> None:
    """Make somebody whose certificate an authority signed."""
    _key(folder, name, "-out", f"{name}.csr")
    (folder / f"{name}.san").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    by = ("-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", _DAYS, "-extfile", f"{name}.san")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *by, "-out", f"{name}.crt")


def _key(folder: Path, name: str, *more: str) -> None:
    _openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", *more)
    # Java reads this form of a key and no other.
    _openssl(folder, "pkcs8", "-topk8", "-nocrypt", "-in", f"{name}.key", "-out", f"{name}.pkcs8")
    (folder / f"{name}.pkcs8").replace(folder / f"{name}.key")


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
