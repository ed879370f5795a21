"""Whom stores take this program for, and how connections are secured, as the environment has it.

    BKMETA_ZK_AUTH                       user:password for ZooKeeper's digest scheme
    BKMETA_ZK_AUTH_FILE                  file whose first line is that; `freeze` makes one where neither is set
    BKMETA_ZK_BOOKIE_AUTH                the same of the bookies, for a freeze's proof
    BKMETA_ETCD_AUTH                     user:password for etcd
    BKMETA_ZK_SASL                       user:password for ZooKeeper's SASL, DIGEST-MD5
    BKMETA_ZK_KERBEROS                   SASL with Kerberos: the service of the servers' principals, mostly zookeeper
    BKMETA_TLS_CA                        file with the certificates that sign the servers', PEM
    BKMETA_TLS_CERT, BKMETA_TLS_KEY      files with our own certificate and its key, PEM
    BKMETA_TLS_KEY_PASSWORD              of the key, where it is encrypted
    BKMETA_PATIENCE_S                    seconds that a store which does not answer is tried; 60

Secrets are never on a command line.
"""

import os
import re
import secrets
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from recovery.errors import InputError

if TYPE_CHECKING:
    from backends.protocols import Sasl, StoreTls
    from recovery.codecs.store_kind import StoreKind

AUTH_VARIABLE: Final = "BKMETA_ZK_AUTH"
AUTH_FILE_VARIABLE: Final = "BKMETA_ZK_AUTH_FILE"
BOOKIE_AUTH_VARIABLE: Final = "BKMETA_ZK_BOOKIE_AUTH"
SASL_VARIABLE: Final = "BKMETA_ZK_SASL"
KERBEROS_VARIABLE: Final = "BKMETA_ZK_KERBEROS"
PATIENCE_VARIABLE: Final = "BKMETA_PATIENCE_S"
TLS_VARIABLE: Final = "BKMETA_TLS"
"""What the names of the variables about TLS begin with."""
_SERVICE: Final = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_S: Final = 7 * 24 * 3600
"""Clocks and timers take no number of any size."""
_LARGEST_PEM: Final = 16 << 20
"""A machine's whole bundle has some hundred kB."""
_LARGEST_IDENTITY: Final = 4096
_USER: Final = "bkmeta"
_PASSWORD_BYTES: Final = 24
_FILE_FORM: Final = f"name a file in {AUTH_FILE_VARIABLE} whose first line is user:password"


class EnvironmentAccess:
    """Reads each variable when a store needs it: what no store needs may be wrong.

    Args:
        identity: a file with the identity of a freeze, where the environment names none.
    """

    def __init__(self, identity: Path | None = None) -> None:
        self._identity = identity

    @property
    def digest(self) -> tuple[str, str] | None:
        """User and password for ZooKeeper's digest scheme."""
        return digest_from_environment() if self._identity is None else read_identity(str(self._identity))

    @property
    def bookie_digest(self) -> tuple[str, str] | None:
        """User and password of the bookies."""
        return user_and_password(BOOKIE_AUTH_VARIABLE)

    @property
    def sasl(self) -> "Sasl | None":
        """User and password for ZooKeeper's SASL, or Kerberos."""
        return sasl_from_environment()

    @property
    def tls(self) -> "StoreTls | None":
        """How connections are encrypted."""
        return tls_from_environment()

    @property
    def patience_s(self) -> float:
        """Seconds that a store which does not answer is tried."""
        return _patience_s()

    def identify(self, kind: "StoreKind") -> tuple[str, str] | None:
        """User and password for a kind of store."""
        return self.digest if kind.auth_variable == AUTH_VARIABLE else user_and_password(kind.auth_variable)


def digest_from_environment() -> tuple[str, str] | None:
    """Return user and password for ZooKeeper's digest scheme; None where no variable says so.

    Raises:
        InputError: the variable or its file has another form or cannot be read, or there are both.
    """
    given, path = user_and_password(AUTH_VARIABLE), os.environ.get(AUTH_FILE_VARIABLE)
    if not path:
        return given
    if given is not None:
        problem = "both say whom ZooKeeper takes this program for"
        raise InputError(f"{AUTH_VARIABLE} and {AUTH_FILE_VARIABLE}", problem, "unset one of them")
    return read_identity(path)


def read_identity(path: str) -> tuple[str, str]:
    """Return user and password of the first line of a file.

    Raises:
        InputError: it cannot be read, or has another form.
    """
    from backends.files import read_bounded

    try:
        line = read_bounded(path, _LARGEST_IDENTITY).decode().partition("\n")[0]
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}", _FILE_FORM) from error
    except UnicodeDecodeError as error:
        raise InputError(path, "is not text", _FILE_FORM) from error
    return _split_identity(line.rstrip("\r"), f"{path}, line 1", _FILE_FORM)


def make_identity(path: Path) -> None:
    """Write a user and a password that nobody else has into a new file that only its owner may read.

    Raises:
        InputError: it cannot be written.
    """
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(f"{_USER}:{secrets.token_urlsafe(_PASSWORD_BYTES)}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        remedy = f"name an identity that no bookie has: export {AUTH_VARIABLE}=user:password"
        raise InputError(str(path), f"cannot be written ({error.strerror})", remedy) from error


def user_and_password(variable: str) -> tuple[str, str] | None:
    """Return what an environment variable says as ``user:password``; None where it is not set.

    Raises:
        InputError: it has another form.
    """
    given = os.environ.get(variable)
    if not given:
        return None
    return _split_identity(given, variable, "set it as user:password, or unset it")


def _split_identity(text: str, where: str, remedy: str) -> tuple[str, str]:
    user, colon, password = text.partition(":")
    if not colon:
        raise InputError(where, "is not user:password", remedy)
    return user, password


def sasl_from_environment() -> "Sasl | None":
    """Return how ZooKeeper's SASL is spoken; None where no variable says so.

    Raises:
        InputError: one of them has another form, or there are two ways.
    """
    password, service = user_and_password(SASL_VARIABLE), os.environ.get(KERBEROS_VARIABLE)
    if not service:
        return password
    if password is not None:
        problem = "ask for two ways of SASL on one connection"
        raise InputError(f"{SASL_VARIABLE} and {KERBEROS_VARIABLE}", problem, "unset one of them")
    if not _SERVICE.fullmatch(service):
        remedy = "set it to the first part of the servers' principals: zookeeper, of zookeeper/host@REALM"
        raise InputError(KERBEROS_VARIABLE, f"{service!r} is not the name of a service", remedy)
    from backends.protocols import Kerberos

    return Kerberos(service)


def tls_from_environment() -> "StoreTls | None":
    """Return how connections are encrypted; None where no variable says so.

    Raises:
        InputError: a file cannot be read or is no PEM, or only one of certificate and key is named.
    """
    from backends.files import read_bounded
    from backends.protocols import StoreTls

    given = {name: os.environ.get(f"{TLS_VARIABLE}_{name}") or None for name in ("CA", "CERT", "KEY")}
    password = os.environ.get(f"{TLS_VARIABLE}_KEY_PASSWORD") or None
    if not any(given.values()):
        return None
    for name, path in given.items():
        variable = f"{TLS_VARIABLE}_{name}"
        try:
            content = b"" if path is None else read_bounded(path, _LARGEST_PEM)
        except OSError as error:
            raise InputError(variable, f"{path}: {error.strerror}", "name a file that you can read") from error
        if path is not None and b"-----BEGIN " not in content:
            raise InputError(variable, f"{path} is not a PEM file", "name one with -----BEGIN lines")
    if given["CA"] is not None:
        try:
            ssl.create_default_context(cafile=given["CA"])
        except ssl.SSLError as error:
            problem = f"{given['CA']} holds no certificate that can be read ({error.reason or error})"
            raise InputError(f"{TLS_VARIABLE}_CA", problem, "name a PEM file of certificates") from error
    if (given["CERT"] is None) != (given["KEY"] is None):
        problem = "name one of certificate and key without the other"
        raise InputError(f"{TLS_VARIABLE}_CERT and _KEY", problem, "set both, or none")
    return StoreTls(ca=given["CA"], cert=given["CERT"], key=given["KEY"], key_password=password)


def _patience_s() -> float:
    """Return how many seconds a store that does not answer is tried.

    Raises:
        InputError: the environment does not give a number above 0.
    """
    given = os.environ.get(PATIENCE_VARIABLE) or "60"
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_S:
        remedy = f"give a number of seconds above 0, at most {_LONGEST_S} (a week), or none for 60"
        raise InputError(PATIENCE_VARIABLE, f"is {given!r}", remedy)
    return seconds
