"""Bookies asked over the wire: the options of every command that does it, and `collect --wire`."""

import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from backends.errors import UnsupportedAuthError
from reconcile.cli.command import Exit
from reconcile.cli.options import FILE, carried, demand_bookie_ids, make_context, now, quoted, read_passwords
from reconcile.cli.output import Output, Result
from reconcile.jobs.context import add_remedy, connect, start_spark, throttle
from reconcile.words import counted
from recovery.errors import InputError

if TYPE_CHECKING:
    from backends.bookie.client import Options
    from recovery.bookies.wire_results import WireSummary

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN: Final = 10
_CONF: Final = "/etc/bookkeeper/bk_server.conf"
_RATE = click.FloatRange(min=0, min_open=True)
_NAMES: Final = (
    "aliases", "max_requests_s", "max_total_requests_s", "deadline", "tls_ca", "tls_cert", "tls_key", "tls_any_host",
    "bookie_auth",
)  # fmt: skip


def wire_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options of asking bookies; `take_wire` takes them out again."""
    for option in reversed(
        (
            click.option("--aliases", type=FILE, help="Other names of bookies: lines of `alias bookie-id`."),
            click.option("--max-requests-s", type=_RATE, metavar="N", help="Asked of one bookie in a second, at most."),
            click.option("--max-total-requests-s", type=_RATE, metavar="N", help="Asked of all in a second, at most."),
            click.option(
                "--deadline", type=_RATE, default=10.0, show_default=True, metavar="S", help="For one answer."
            ),
            click.option("--tls-ca", type=FILE, help="PEM: who vouches for the bookies. Turns TLS on."),
            click.option("--tls-cert", type=FILE, help="PEM: the certificate to show. Turns TLS on."),
            click.option("--tls-key", type=FILE, help="PEM: its key, without a password."),
            click.option("--tls-any-host", is_flag=True, help="A bookie's certificate need not name its host."),
            click.option("--bookie-auth", metavar="MODULE:NAME", help="How to authenticate; SASL is not supported."),
        )
    ):
        command = option(command)
    return command


def take_wire(values: dict[str, Any], *, wire: bool) -> "tuple[Options, dict[str, str]] | None":
    """Take the options of asking bookies out of a command's arguments; None where it does not ask any.

    Raises:
        UsageError: they were given without --wire.
        InputError: a file of theirs, or a mechanism, cannot be used.
    """
    given = {name: values.pop(name) for name in _NAMES}
    if not wire:
        context = click.get_current_context()
        for name in _NAMES:
            if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name.replace('_', '-')} has no meaning without --wire")
        return None
    from backends.bookie.auth import load_mechanism
    from backends.bookie.client import Options, Tls

    tls = None
    if given["tls_ca"] or given["tls_cert"]:
        tls = Tls(given["tls_ca"], given["tls_cert"], given["tls_key"], check_host=not given["tls_any_host"])
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
    options = Options(
        deadline_s=given["deadline"],
        per_bookie=given["max_requests_s"],
        in_total=given["max_total_requests_s"],
        tls=tls,
        auth=given["bookie_auth"],
    )
    return options, read_aliases(given["aliases"])


def read_aliases(path: Path | None) -> dict[str, str]:
    """Read lines of ``alias bookie-id``; empty lines and lines that begin with # are passed over.

    Raises:
        InputError: unreadable, not text, another line, or an alias of two bookies.
    """
    if path is None:
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "name a file that you can read") from error
    except UnicodeDecodeError as error:
        raise InputError(str(path), "is not text", "write lines of: alias bookie-id") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InputError(f"{path}, line {number}", "is not `alias bookie-id`", "mend the line")
        if found.setdefault(words[0], words[1]) != words[1]:
            raise InputError(f"{path}, line {number}", f"gives {words[0]} to a second bookie", "mend the line")
    demand_bookie_ids([*found.values()], str(path))
    return found


def collect_cluster(
    uri: str,
    names: tuple[str, ...] | None,
    asked: "tuple[Options, dict[str, str]]",
    passwords: Path | None,
    where: tuple[str, Path | None],
    out: Path,
    output: Output,
) -> Result:
    """Ask the bookies of a cluster into inventories below a folder; on a master, with what its executors are to run."""
    from reconcile.jobs.capture import capture_store
    from recovery.bookies.addresses import read_members
    from recovery.bookies.wire_inventory import Request, collect_wire
    from recovery.bookies.wire_results import CATALOG
    from recovery.dataset import open_dataset
    from recovery.spark import demand_spark, over_buckets

    master, python = where
    demand_spark(master, python)
    options, aliases = asked
    candidates = read_passwords(passwords)
    again = f"what stands in {out} is not whole: run the command again, into another folder"
    with add_remedy(again), connect(uri, make_context(output)) as opened:
        members = read_members(opened.store, opened.root, opened.layout_hint, aliases)
        summary = capture_store(opened, out / CATALOG, make_context(output))
    if summary.root != "present":
        raise InputError(uri, "has no ledgers root, so nothing says what to ask for", "collect from the bookies' disks")
    with (
        add_remedy(again),
        start_spark(master, python, make_context(output)) as spark,
        output.progress("asking bookies", "parts") as told,
    ):
        show = throttle(told)
        tasks = max(1, spark.sparkContext.defaultParallelism)
        request = Request(open_dataset(out / CATALOG, "catalog"), members, names, options, candidates, tasks)
        found = collect_wire(request, out, lambda task, ranges: over_buckets(spark, task, ranges, done=show), now=now)
    return _collected(found, summary.gaps, out)


def _collected(found: "WireSummary", gaps: Sequence[str], out: Path) -> Result:
    from recovery.bookies.addresses import ALIAS_UNRESOLVED
    from recovery.bookies.wire_results import NOT_TOLD, Kind, folder_of

    made = [bookie for bookie in found.bookies if bookie.kind is Kind.COLLECTED]
    without = [bookie for bookie in found.bookies if bookie.kind is not Kind.COLLECTED]
    partly = [bookie for bookie in made if bookie.unanswered]
    unknown = bool(without or partly or found.unresolved or gaps or found.scoped)
    entries = sum(bookie.entries for bookie in made)
    listed, shown = counted(found.listed, "ledger"), counted(entries, "entry", "entries")
    verdict = f"{len(made)} of {counted(len(found.bookies), 'bookie')} answered for {listed}: {shown}"
    if unknown:
        verdict += ", NOT complete: what was not answered may exist"
    details = [
        f"{bookie.bookie}: {bookie.ledgers} ledgers, {bookie.entries} entries, in {bookie.folder}"
        for bookie in made[:_SHOWN]
    ]
    details += [
        f"{bookie.bookie}: nothing is known of {bookie.unanswered} ledgers ({bookie.why})" for bookie in partly[:_SHOWN]
    ]
    for bookie in without[:_SHOWN]:
        if bookie.kind is Kind.NO_LISTS:
            command = quoted("bkmeta", "collect", "--bookie-conf", _CONF, "--out", f"inv-{folder_of(bookie.bookie)}")
            details.append(
                f"{bookie.bookie}: does not say what it has of a ledger (DbLedgerStorage, or BookKeeper before 4.10); "
                f"run on its host: {command}"
            )
        else:
            details.append(f"{bookie.bookie}: {bookie.kind.replace('_', ' ')} ({bookie.why})")
    details += [f"{ALIAS_UNRESOLVED} {name}: {why}" for name, why in list(found.unresolved.items())[:_SHOWN]]
    details += [f"not read in the store: {gap}" for gap in gaps[:_SHOWN]]
    if found.scoped:
        details.append(f"not asked for: {found.scoped} ledgers of other scopes, which no released bookie knows")
    details.append("the wire does not tell: " + "; ".join(NOT_TOLD))
    return Result(
        "collect",
        verdict,
        Exit.UNDECIDABLE if unknown else Exit.DONE,
        counts={
            "ledgers": found.listed,
            "bookies": len(made),
            "entries": entries,
            "negatives": sum(bookie.negatives for bookie in made),
            "unanswered": sum(bookie.unanswered for bookie in made),
            "damaged": sum(bookie.damaged for bookie in made),
        },
        coverage={
            "complete": False,
            "not_told": list(NOT_TOLD),
            "bookies": {bookie.bookie: _said(bookie) for bookie in found.bookies},
            "unresolved": dict(found.unresolved),
            "gaps": list(gaps),
            "other_scopes": found.scoped,
        },
        details=details,
        following=quoted("bkmeta", "explain", "LEDGER", "--inventory-dir", out, *carried("--metadata")) if made else "",
        facts={"out": str(out)},
    )


def _said(bookie: Any) -> Mapping[str, object]:  # noqa: ANN401 - see recovery.collect.wire
    names = ("why", "folder", "ledgers", "entries", "negatives", "unanswered", "damaged")
    return {"kind": str(bookie.kind), **{name: getattr(bookie, name) for name in names}}
