"""The options of every command that asks bookies over the wire."""

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from backends.errors import UnsupportedAuthError
from reconcile.cli.options import FILE, aliases_option, read_aliases
from recovery.errors import InputError

if TYPE_CHECKING:
    from reconcile.jobs.context import WireOptions

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN: Final = 10
_CONF: Final = "/etc/bookkeeper/bk_server.conf"
_RATE = click.FloatRange(min=0, min_open=True)
_NAMES: Final = (
    "aliases", "max_requests_s", "max_total_requests_s", "deadline", "patience", "tls_ca", "tls_cert", "tls_key",
    "tls_any_host", "bookie_auth",
)  # fmt: skip


def wire_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options of asking bookies; `take_wire` takes them out again."""
    for option in reversed(
        (
            aliases_option,
            click.option(
                "--max-requests-s", type=_RATE, metavar="N", help="Requests that one bookie gets in a second, at most."
            ),
            click.option(
                "--max-total-requests-s",
                type=_RATE,
                metavar="N",
                help="Requests that all bookies together get in a second, at most.",
            ),
            click.option(
                "--deadline",
                type=_RATE,
                default=10.0,
                show_default=True,
                metavar="S",
                help="How long to wait for one answer.",
            ),
            click.option(
                "--patience",
                type=_RATE,
                default=20.0,
                show_default=True,
                metavar="S",
                help="How long to try to connect: a bookie that restarts is back within that time.",
            ),
            click.option(
                "--tls-ca",
                type=FILE,
                help="PEM of the certificate authority that signed the bookies' certificates. Turns TLS on.",
            ),
            click.option("--tls-cert", type=FILE, help="PEM of the certificate to present. Turns TLS on."),
            click.option("--tls-key", type=FILE, help="PEM of the certificate's key, without a password."),
            click.option(
                "--tls-any-host", is_flag=True, help="Accept a certificate that does not name the bookie's host."
            ),
            click.option(
                "--bookie-auth",
                metavar="NAME",
                help="How to authenticate: sasl-digest-md5, sasl-gssapi (Kerberos), or MODULE:NAME of your own.",
            ),
        )
    ):
        command = option(command)
    return command


def take_wire(values: dict[str, Any], *, wire: bool, without: frozenset[str] = frozenset()) -> "WireOptions | None":
    """Take the options of asking bookies out of a command's arguments; None where it does not ask any.

    Args:
        values: the arguments.
        wire: bookies are asked.
        without: options of these that mean something where none is asked, too.

    Raises:
        UsageError: they were given without --wire.
        InputError: a file of theirs, or a mechanism, cannot be used.
    """
    given = {name: values.pop(name) for name in _NAMES}
    if not wire:
        context = click.get_current_context()
        for name in _NAMES:
            if name not in without and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name.replace('_', '-')} has no meaning without --wire")
        return None
    from backends.bookie.auth import load_mechanism
    from backends.bookie.client import BookieOptions, BookieTls
    from reconcile.jobs.context import WireOptions

    tls = None
    if given["tls_ca"] or given["tls_cert"]:
        tls = BookieTls(given["tls_ca"], given["tls_cert"], given["tls_key"], check_host=not given["tls_any_host"])
        try:
            tls.context()
        except (OSError, ssl.SSLError) as error:
            remedy = "name PEM files that you can read, and a key without a password"
            raise InputError("TLS", f"cannot be prepared ({error.strerror or error})", remedy) from error
    elif given["tls_key"] or given["tls_any_host"]:
        raise click.UsageError("--tls-key and --tls-any-host belong to --tls-ca or --tls-cert")
    if given["bookie_auth"]:
        try:
            load_mechanism(given["bookie_auth"])
        except UnsupportedAuthError as error:
            raise InputError("--bookie-auth", str(error), "leave it out where bookies ask for none") from error
    options = BookieOptions(
        deadline_s=given["deadline"],
        patience_s=given["patience"],
        per_bookie=given["max_requests_s"],
        in_total=given["max_total_requests_s"],
        tls=tls,
        auth=given["bookie_auth"],
    )
    return WireOptions(options, read_aliases(given["aliases"]))
