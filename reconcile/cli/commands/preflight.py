"""The command for the first ten minutes: preflight."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from backends.errors import UnavailableError
from reconcile.cli.access import AUTH_FILE_VARIABLE
from reconcile.cli.command import Command, Exit
from reconcile.cli.incident import OPTION as INCIDENT
from reconcile.cli.options import (
    FILE,
    aliases_option,
    carry_options,
    describe_collect,
    find_inventories_folder,
    inventory_options,
    make_context,
    make_output,
    output_options,
    read_aliases,
)
from reconcile.cli.output import Output, Result
from reconcile.words import count_noun, list_names
from recovery.codecs.store_kind import guess_kind

if TYPE_CHECKING:
    from reconcile.check.preflight.report import Remark, Report

_Step = tuple[str, ...]
_BEFORE: Final[tuple[_Step, ...]] = (
    (
        "Suspend whatever acts on its own: operators, Helm jobs, init containers, liveness probes.",
        "They initialise clusters again, or start bookies again.",
    ),
    (
        "On each bookie: kill -STOP, then see that it is in state T (ps -o stat=). Never kill -CONT, after",
        "which it goes on deleting, and no clean stop, which commits deletes that are pending.",
    ),
)
_AFTER: Final[tuple[_Step, ...]] = (
    ("Take a snapshot of the bookies' volumes.",),
    (
        "Then kill -KILL the bookies, when nothing can start them again: not systemd (Restart=), not a",
        "kubelet. Where journalWriteData=false, ask a BookKeeper expert first: entries may be in memory only.",
    ),
    ("Never run metaformat. Never run initnewcluster.",),
)
LEDGERS_ONLY: Final = "This brings ledgers back, not topics: the upper layer's own records come from {}."


def first_ten_minutes(uri: str | None) -> tuple[_Step, ...]:
    """Return what to do so that nothing more is lost, in this order; true whatever the store says.

    Args:
        uri: of the store, perhaps not a right one; None: it was not named, and is taken for ZooKeeper.
    """
    # By its first letters: what takes URIs apart takes longer to load than this to print.
    kind = guess_kind(uri)
    stay = (
        f"Keep all of them stopped until apply has ended: {kind.name}'s keys have no rights of their own,",
        f"so nothing in {kind.name} keeps a bookie that runs from deleting.",
    )
    return (*_BEFORE, kind.how_to_copy, *_AFTER, *(() if kind.has_acls else (stay,)))


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "all that the bookies hold is listed; always without --metadata",
        Exit.USAGE: "a URI, inventories or files that cannot be used",
        Exit.FOUND: "critical: data can be deleted now; or a warning",
        Exit.UNDECIDABLE: "the store did not answer; or nothing bad was found, but not everything that matters was "
        "checked",
    },
    epilog="Example: bkmeta preflight --metadata zk+hierarchical://zk1:2181/ledgers --inventory inv/bk1 "
    "--inventory inv/bk2 --bookie-conf bk1/bk_server.conf --http bk2:8080",
)
@click.option("--metadata", "uri", metavar="URI", help="The store, named as in bk_server.conf.")
@inventory_options("One bookie's inventory, or a table of entries; give one for each bookie.")
@click.option("--bookie-conf", "confs", multiple=True, type=FILE, help="A bookie's configuration file.")
@click.option("--http", "addresses", multiple=True, metavar="HOST:PORT", help="A bookie's HTTP admin API.")
@aliases_option
@output_options
def preflight(
    uri: str | None,
    inventories: tuple[str, ...],
    confs: tuple[Path, ...],
    addresses: tuple[str, ...],
    aliases: Path | None,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Say what to do in the first ten minutes, then whether data can be deleted right now. Reads only.

    The first part is printed before anything is connected to. The second needs --metadata, and says the more the
    more of the bookies' inventories it is given.
    """
    # With --json people still read it, and programs get stdout for themselves.
    _print_first_ten_minutes(uri, to_stderr=bool(shared["as_json"] or shared["short"]))
    output = make_output(shared)
    if uri is None:
        more = "bkmeta rescue leads through all of it; bkmeta preflight --metadata URI --inventory DIR … says whether "
        more += "data can be deleted right now"
        sys.exit(output.show(_result(uri, "the store was not checked: --metadata was not given", 0, following=more)))
    sys.exit(output.show(_examine(uri, inventories, confs, addresses, aliases, output)))


def _print_first_ten_minutes(uri: str | None, *, to_stderr: bool) -> None:
    click.echo("THE FIRST TEN MINUTES of a store that was lost, emptied or put back from an older copy:", err=to_stderr)
    click.echo(
        "  (If ledgers were only deleted and the cluster lives: stop nothing, run bkmeta rescue.)", err=to_stderr
    )
    for number, lines in enumerate(first_ten_minutes(uri), 1):
        for at, line in enumerate(lines):
            click.echo(f"  {number}. {line}" if at == 0 else f"     {line}", err=to_stderr)
    click.echo(f"  {LEDGERS_ONLY.format(guess_kind(uri).copies)}\n", err=to_stderr)
    (sys.stderr if to_stderr else sys.stdout).flush()


def _result(uri: str | None, verdict: str, code: int, *, following: str, **more: Any) -> Result:  # noqa: ANN401 - Result's fields
    facts = {
        "first_ten_minutes": [" ".join(lines) for lines in first_ten_minutes(uri)],
        **more.pop("facts", {}),
    }
    return Result("preflight", verdict, code, following=following, facts=facts, **more)


def _examine(
    uri: str,
    inventories: tuple[str, ...],
    confs: tuple[Path, ...],
    addresses: tuple[str, ...],
    aliases: Path | None,
    output: Output,
) -> Result:
    # All after the first ten minutes are printed: pyarrow alone takes longer than printing them.
    from reconcile.jobs.diagnose import preflight as job

    request = job.PreflightRequest(
        uri=uri, inventories=inventories, confs=confs, addresses=addresses, aliases=read_aliases(aliases)
    )
    try:
        report = job.examine(request, make_context(output))
    except UnavailableError as error:
        return _result(
            uri,
            f"UNDECIDED: {error}. While bookies cannot list the store either, they delete nothing. A store that "
            f"comes back empty makes them delete everything",
            Exit.UNDECIDABLE,
            following="stop the bookies before the store is started again: kill -STOP",
            coverage={"store": "not available"},
        )
    return _make_result(report, uri, inventories)


def _make_result(report: "Report", uri: str, inventories: Sequence[str]) -> Result:
    worst = report.level.value
    first = report.remarks[0]
    text = first.text
    if worst == "ok":
        text = next(remark.text for remark in report.remarks if remark.subject == "ledgers")
    code = Exit.FOUND if worst in ("critical", "warning") else Exit.UNDECIDABLE if report.undecided else 0
    rest = [remark for remark in report.remarks if remark.text != text]
    details = [remark.text if remark.level == "ok" else f"{remark.level.upper()}: {remark.text}" for remark in rest]
    details += [f"not read: settings from {unread.source} ({unread.problem})" for unread in report.unread]
    if worst == "critical" and report.bookies:
        details += ["", "stop the bookies in this order, kill -STOP each, before anything else is tried:"]
        details += [f"  {number}. {line}" for number, line in enumerate(_stop_order(report), 1)]
    if running := [bookie.id for bookie in report.bookies if bookie.answers]:
        details.append(
            f"running, they answered: {list_names(running)}. A bookie that still answers after kill -STOP was not "
            f"stopped: the first process of a container ignores this signal from inside. Send it from the node"
        )
    return _result(
        uri,
        f"{worst.upper()}: {text}",
        code,
        counts=dict(report.counts),
        coverage={
            "listed_whole": report.listed_whole,
            "compared_with": list(report.coverage.scanned),
            "not_compared_with": list(report.coverage.not_scanned),
            "settings_unread": [asdict(unread) for unread in report.unread],
        },
        details=details,
        following=_choose_next(report, uri, inventories),
        facts={
            "level": worst,
            "root": report.root,
            "layout": report.layout,
            "findings": [_as_json(remark) for remark in report.remarks],
            "bookies": [
                {
                    "id": bookie.id,
                    "registered": bookie.registered,
                    "answers": bookie.answers,
                    "inventory": bookie.inventory,
                    "gc_wait_ms": bookie.wait_ms,
                    "settings": asdict(bookie.settings) if bookie.settings else None,
                }
                for bookie in report.bookies
            ],
            "freeze": None
            if report.freeze is None
            else {
                "state": report.freeze.state,
                "open": report.freeze.open,
                "replication_disabled": report.freeze.replication_disabled,
            },
            "auditor": report.auditor,
        },
    )


def _as_json(remark: "Remark") -> dict[str, str | None]:
    from reconcile.findings.categories import TRAITS

    category = None if remark.finding is None else remark.finding.category
    return {
        "level": remark.level,
        "subject": remark.subject,
        "text": remark.text,
        "category": category,
        "suggested": None if category is None else TRAITS[category].remedy,
    }


def _stop_order(report: "Report") -> list[str]:
    from reconcile.check.preflight.report import stop_order

    return stop_order(report.bookies)


def _choose_next(report: "Report", uri: str, inventories: Sequence[str]) -> str:
    from reconcile.stores import has_rights

    frozen = report.freeze is not None and report.freeze.frozen
    given = carry_options("--inventory", "--inventory-dir", "--metadata", "--aliases")
    recover = shlex.join(["bkmeta", "recover", *given, "--out", "plan"])
    collect = describe_collect()
    command = shlex.join(["bkmeta", "preflight", *given])
    stop = "stop every bookie (kill -STOP) and keep them stopped until apply has ended; then "
    lacking = report.level == "critical" or bool(report.counts.get("ledgers_absent"))
    if report.level == "critical" and not frozen:
        if report.of_strangers:
            return f"stop every bookie that was collected (kill -STOP); is this their store? If not: {command}"
        if report.layout is not None and has_rights(uri):
            freeze = shlex.join(["bkmeta", "freeze", *carry_options("--metadata")])
            if not report.silent:
                return freeze
            known = count_noun(len(report.bookies), "bookie")
            still = (
                f"nothing answers at the addresses of the {known} known here, and none is registered. If every bookie"
            )
            still += " of the cluster is stopped (state T) or gone, keep it so until apply has ended, and: "
            return f"{still}{recover if inventories else collect}; else: {freeze}"
        return stop + (recover if inventories else collect)
    if report.denied:
        return f"connect as an identity that may read: {AUTH_FILE_VARIABLE}=FILE {command}  (user:password is in FILE)"
    if not inventories:
        # An incident file says where inventories will be.
        brought = [] if INCIDENT in given else ["--inventory-dir", find_inventories_folder()]
        ask = f"{collect}; then: {shlex.join(['bkmeta', 'preflight', *given, *brought])}"
        if frozen:
            return ask
        # A store that lists ledgers may have lost others: nothing tells until it is compared with disks.
        first = "" if report.level == "warning" else "if metadata may be lost: "
        return f"{first}kill -STOP every bookie until it is compared; {ask}"
    if report.coverage.not_scanned:
        return f"{collect}; not read yet: {', '.join(report.coverage.not_scanned[:5])}"
    if lacking:
        return recover
    return (
        shlex.join(["bkmeta", "capture", "--metadata", uri, "--out", "catalog"]) + "  (daily: the cheapest insurance)"
    )
