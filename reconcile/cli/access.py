"""Whom stores take this program for, and how connections are secured, as the environment has it.

    BKMETA_ZK_AUTH                       user:password for ZooKeeper's digest scheme
    BKMETA_ZK_BOOKIE_AUTH                the same of the bookies, for a freeze's proof
    BKMETA_ETCD_AUTH                     user:password for etcd
    BKMETA_ZK_SASL                       user:password for ZooKeeper's SASL, DIGEST-MD5
    BKMETA_ZK_KERBEROS                   SASL with Kerberos: the service of the servers' principals, mostly zookeeper
    BKMETA_TLS_CA                        file with the certificates that sign the servers', PEM
    BKMETA_TLS_CERT, BKMETA_TLS_KEY      files with our own certificate and its key, PEM
    BKMETA_TLS_KEY_PASSWORD              of the key, where it is encrypted
    BKMETA_PATIENCE_S                    seconds that a store which does not answer is tried; 60

Secrets never stand on a command line.
"""

import os
import re
import ssl
from typing import TYPE_CHECKING, Final

from recovery.errors import InputError

if TYPE_CHECKING:
    from backends.protocols import Sasl, Tls

AUTH_VARIABLE: Final = "BKMETA_ZK_AUTH"
BOOKIE_AUTH_VARIABLE: Final = "BKMETA_ZK_BOOKIE_AUTH"
SASL_VARIABLE: Final = "BKMETA_ZK_SASL"
KERBEROS_VARIABLE: Final = "BKMETA_ZK_KERBEROS"
ETCD_AUTH_VARIABLE: Final = "BKMETA_ETCD_AUTH"
PATIENCE_VARIABLE: Final = "BKMETA_PATIENCE_S"
TLS_VARIABLE: Final = "BKMETA_TLS"
"""What the names of the variables about TLS begin with."""
_SERVICE: Final = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_S: Final = 7 * 24 * 3600
"""Clocks and timers take no number of any size."""
_LARGEST_PEM: Final = 16 << 20
"""A machine's whole bundle has some hundred kB."""


class EnvironmentAccess:
    """Reads each variable when a store needs it: what no store needs may be wrong."""

    @property
    def digest(self) -> tuple[str, str] | None:
        """User and password for ZooKeeper's digest scheme."""
        return user_and_password(AUTH_VARIABLE)

    @property
    def bookie_digest(self) -> tuple[str, str] | None:
        """User and password of the bookies."""
        return user_and_password(BOOKIE_AUTH_VARIABLE)

    @property
    def sasl(self) -> "Sasl | None":
        """User and password for ZooKeeper's SASL, or Kerberos."""
        return sasl_from_environment()

    @property
    def etcd(self) -> tuple[str, str] | None:
        """User and password for etcd."""
        return user_and_password(ETCD_AUTH_VARIABLE)

    @property
    def tls(self) -> "Tls | None":
        """How connections are encrypted."""
        return tls_from_environment()

    @property
    def patience_s(self) -> float:
        """Seconds that a store which does not answer is tried."""
        return _patience_s()


def user_and_password(variable: str) -> tuple[str, str] | None:
    """Return what an environment variable says as ``user:password``; None where it is not set.

    Raises:
        InputError: it has another form.
    """
    given = os.environ.get(variable)
    if not given:
        return None
    user, colon, password = given.partition(":")
    if not colon:
        raise InputError(variable, "is not user:password", "set it as user:password, or unset it")
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
        raise InputError(KERBEROS_VARIABLE, f"{service!r} is no name of a service", remedy)
    from backends.protocols import Kerberos

    return Kerberos(service)


def tls_from_environment() -> "Tls | None":
    """Return how connections are encrypted; None where no variable says so.

    Raises:
        InputError: a file cannot be read or is no PEM, or only one of certificate and key is named.
    """
    from backends.files import read_bounded
    from backends.protocols import Tls

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
            raise InputError(variable, f"{path} is no PEM file", "name one with -----BEGIN lines")
    if given["CA"] is not None:
        try:
            ssl.create_default_context(cafile=given["CA"])
        except ssl.SSLError as error:
            problem = f"{given['CA']} holds no certificate that can be read ({error.reason or error})"
            raise InputError(f"{TLS_VARIABLE}_CA", problem, "name a PEM file of certificates") from error
    if (given["CERT"] is None) != (given["KEY"] is None):
        problem = "name one of certificate and key without the other"
        raise InputError(f"{TLS_VARIABLE}_CERT and _KEY", problem, "set both, or none")
    return Tls(ca=given["CA"], cert=given["CERT"], key=given["KEY"], key_password=password)


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
