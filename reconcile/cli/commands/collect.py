"""The command that makes inventories, on a bookie's own host or over the wire: collect."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.incident import OPTION as INCIDENT
from reconcile.cli.incident import is_typed
from reconcile.cli.option_groups.wire import take_wire, wire_options
from reconcile.cli.options import (
    FILE,
    FOLDER,
    PLACE,
    carry_options,
    executor_option,
    make_context,
    make_output,
    master_option,
    now,
    output_options,
    quote_command,
    read_passwords,
    require_bookie_ids,
)
from reconcile.cli.output import Output, Result
from reconcile.cli.settings import CONF_FILE, DEFAULT, effective_settings
from reconcile.cli.wording.bookies import cluster_result
from reconcile.cli.wording.whole_datasets import tell_if_whole
from reconcile.words import count_noun, list_names
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.collect.bookie import BookieDamage, DamagePlace
    from reconcile.jobs.context import WireOptions
    from recovery.collect.deep_check.counts import DeepCounts
    from recovery.collect.incremental.records import Reused

_SHOWN: Final = 3
"""Places of damage of each rank."""
_DISPUTED: Final = {
    "bookie": "the VERSION files name different bookies; this inventory is of {bookie}. Collect again with --bookie-id "
    "and the id that ledger metadata names",
    "instance": "the VERSION files name different clusters. Collect again with --instance-id and the id that the other "
    "bookies' VERSION files name",
}
_PROCESSES: Final = 2
"""More hardly help, and a live bookie needs the rest."""


def _parse_txn(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        txn = int(value, 0)
    except ValueError:
        txn = -1
    if not 0 <= txn < 1 << 63:
        raise click.BadParameter("write the number as bkmeta capture prints it, for example 0x500000012 or 8461")
    return txn


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "the bookie was collected completely",
        Exit.FAILED: "the disk of --out is full, the store did not answer, Spark or the tool failed",
        Exit.USAGE: "folders, ids, URIs or files that cannot be used; with --wire: no Java, no Spark",
        Exit.FOUND: "the bookie deletes: ledgers disappeared while it was collected",
        Exit.UNDECIDABLE: "collected, but not completely: what was not read, or not answered, may exist",
    },
    epilog="Example: bkmeta collect --bookie-conf /etc/bookkeeper/bk_server.conf --out /var/tmp/inv-bk1",
)
@click.option(
    "--metadata",
    "uri",
    metavar="URI",
    help="The store: its transaction dates the inventory; with --wire, its ledgers are asked for.",
)
@click.option(
    "--as-of",
    metavar="TXN",
    callback=_parse_txn,
    help="The store's transaction or revision from before the collection, where this host cannot reach the store.",
)
@click.option("--wire", is_flag=True, help="Ask running bookies instead of reading disks.")
@click.option("--bookies", metavar="ID,...", help="With --wire: only these. [default: all that the store knows]")
@master_option
@executor_option
@wire_options
@click.option("--bookie-conf", type=FILE, help="The bookie's own bk_server.conf, which names its folders.")
@click.option(
    "--ledger-dir",
    "ledger_dirs",
    type=FOLDER,
    multiple=True,
    help="A folder of the bookie, with or without its current/.",
)
@click.option(
    "--index-dir", "index_dirs", type=FOLDER, multiple=True, help="The index folder, if it is not the ledger folder."
)
@click.option(
    "--journal-dir",
    "journal_dirs",
    type=FOLDER,
    multiple=True,
    help="A folder of the bookie, with or without its current/.",
)
@click.option(
    "--bookie-id",
    metavar="ID",
    help="Only where no cookie can be read, or where cookies name different bookies. [default: the cookie's]",
)
@click.option(
    "--instance-id",
    metavar="ID",
    help="The cluster's instance id, where cookies disagree or are wrong. [default: the cookie's]",
)
@click.option(
    "--passwords", type=FILE, help="Candidate passwords, one a line; mode 0600. They prove digests of type HMAC."
)
@click.option("--deep", is_flag=True, help="Compare index, entry logs and journals entry by entry; check every digest.")
@click.option("--incremental", is_flag=True, help="Keep in --out what the next collection need not read again.")
@click.option(
    "--since",
    type=PLACE,
    metavar="DIR",
    help="An inventory of this bookie made with --incremental: read only what changed. Implies --incremental.",
)
@click.option(
    "--max-mb-s", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N MB are read in a second."
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that read index files at the same time. [default: ",
)
@click.option("--out", type=PLACE, required=True, help="A new folder for the inventory, not on the bookie's disks.")
@output_options
def collect(
    uri: str | None,
    as_of: int | None,
    wire: bool,  # noqa: FBT001 - click's option
    bookies: str | None,
    master: str | None,
    python: Path | None,
    bookie_conf: Path | None,
    ledger_dirs: tuple[Path, ...],
    index_dirs: tuple[Path, ...],
    journal_dirs: tuple[Path, ...],
    bookie_id: str | None,
    instance_id: str | None,
    passwords: Path | None,
    deep: bool,  # noqa: FBT001 - click's option
    incremental: bool,  # noqa: FBT001 - click's option
    since: DatasetPlace | None,
    max_mb_s: float | None,
    processes: int | None,
    out: DatasetPlace,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Read one bookie's disks into an inventory. Nothing is written below the bookie's folders.

    The bookie may be stopped, killed or running; needs neither Java nor Spark. What each folder is for is found by
    what is in it. With --metadata or --as-of the inventory says which records of the store it is newer than: a
    scrutiny of a running cluster needs that on etcd, which keeps no times.

    With --wire instead: ask the running bookies of a cluster for every ledger that its store lists, into an inventory
    for each below --out. Nothing is fenced, recovered or written. Bookies of DbLedgerStorage do not say what they have
    of a ledger; they are named, with the command that collects them on their hosts.
    """
    from reconcile.jobs.collect.bookie import collect_bookie, read_latest_txn
    from recovery.collect.disk.bookie_conf import read_conf
    from recovery.collect.options import CollectOptions
    from recovery.dataset import REPORT

    output = make_output(shared)
    asked = take_wire(shared, wire=wire)
    if not wire and not is_typed("uri"):
        uri = None
    if (wire and uri is None) or ((bookies or python) and not wire):
        raise click.UsageError("--wire needs --metadata; --bookies and --executor-python need --wire")
    if as_of is not None and uri is not None:
        raise click.UsageError("--metadata reads what --as-of says: give one of them")
    if asked is not None and uri is not None:
        if bookie_conf or ledger_dirs or index_dirs or journal_dirs or bookie_id or instance_id:
            raise click.UsageError("--wire reads no disks: of the other options it takes --passwords and --out")
        if deep or max_mb_s or processes:
            raise click.UsageError("--wire reads no disks: of the other options it takes --passwords and --out")
        if incremental or since:
            raise click.UsageError("--wire reads no disks: of the other options it takes --passwords and --out")
        names = tuple(name.strip() for name in bookies.split(",") if name.strip()) if bookies else None
        require_bookie_ids(names or (), "--bookies")
        sys.exit(output.show(_collect_over_wire(uri, names, asked, passwords, (master, python), out, output)))
    if bool(bookie_conf) == bool(ledger_dirs or index_dirs or journal_dirs):
        raise click.UsageError("give either --bookie-conf, or the folders with --ledger-dir and the like")
    if deep and (incremental or since):
        raise click.UsageError("--deep reads everything: leave --incremental and --since out")
    taken: dict[str, tuple[object, str]] = {}
    configured_id = None
    expands_storage = stamps_cookies = None
    if bookie_conf:
        conf = read_conf(bookie_conf)
        ledger_dirs, index_dirs, journal_dirs = conf.ledger_dirs, conf.index_dirs, conf.journal_dirs
        expands_storage, stamps_cookies = conf.expands_storage, conf.stamps_cookies
        folders = {"--ledger-dir": ledger_dirs, "--index-dir": index_dirs, "--journal-dir": journal_dirs}
        taken |= {option: (named, CONF_FILE) for option, named in folders.items()}
        if bookie_id is None and conf.bookie_id is not None:
            configured_id = conf.bookie_id
            taken["--bookie-id"] = configured_id, CONF_FILE
    if processes is None:
        processes = min(_PROCESSES, len(os.sched_getaffinity(0)))
        taken["--processes"] = processes, DEFAULT
    context = make_context(output)
    tell_if_whole(out, "inventory")
    options = CollectOptions(
        ledger_dirs=ledger_dirs,
        index_dirs=index_dirs,
        journal_dirs=journal_dirs,
        bookie_id=bookie_id,
        instance_id=instance_id or None,
        configured_id=configured_id,
        may_lack=bookie_conf is not None,
        passwords=read_passwords(passwords),
        max_mb_s=max_mb_s,
        deep=deep,
        keep=incremental,
        since=since,
        # Before anything of the bookie is read: what the store had by then, the inventory shows.
        as_of=as_of if uri is None else read_latest_txn(uri, context),
        processes=processes,
        expands_storage=expands_storage,
        stamps_cookies=stamps_cookies,
        settings=effective_settings(taken),
    )
    collected = collect_bookie(options, out, context)
    summary, damage = collected.summary, collected.damage
    counted = f"{count_noun(summary.ledgers, 'ledger')}, {count_noun(summary.entries, 'entry', 'entries')}"
    verdict = f"bookie {summary.bookie}: {counted}"
    verdict += ", collected completely" if summary.complete else ", NOT complete: what is missing may exist"
    suspect = list(damage.suspect)
    if summary.disputed:
        verdict += "; ITS VERSION FILES DISAGREE"
    if suspect:
        verdict += f"; SUSPECT: {'the disk' if len(suspect) == 1 else 'the disks'} of {', '.join(suspect)}"
    if summary.deleted:
        went = "1 or more ledgers" if summary.deleted == 1 else f"{summary.deleted} or more ledgers"
        why = "the metadata store is lost: stop it now; the cluster is healthy: retention, and normal"
        verdict = f"THE BOOKIE DELETES: {went} disappeared while it was collected ({why}). {verdict}"
    storage = {"interleaved": "interleaved or sorted", "none": "not known: no index was found"}
    stopped = (
        "not known how it was stopped"
        if summary.dirty is None
        else "runs, or was killed"
        if summary.dirty
        else "stopped cleanly"
    )
    details = [
        f"storage {storage.get(summary.storage, summary.storage)}; {stopped}",
        *(
            f"not given, though the cookie names it: {folder}"
            if bookie_conf is None
            else f"not there, though the cookie or {bookie_conf} names it: {folder}"
            for folder in dict.fromkeys(summary.missing)
        ),
        *(_DISPUTED[what].format(bookie=summary.bookie) for what in summary.disputed),
    ]
    if summary.leftover:
        subject = "1 of these ledgers is" if summary.leftover == 1 else f"{summary.leftover} of these ledgers are"
        why = (
            f"its index may be in what is not there ({list_names(summary.missing)}), so nothing shows that the bookie "
            "deleted it"
            if summary.missing
            else "as bookies leave what they delete: on purpose, or because the metadata store no longer named it"
        )
        details.append(f"{subject} in entry logs or old journals only: {why}")
    if summary.damaged:
        hides = "some of it hides entries" if summary.hiding else "none of it hides an entry"
        details.append(f"places of damage: {summary.damaged}, {hides}")
        details += [f"  {line}" for line in _damage_lines(damage)]
    if summary.deleted:
        details.append(
            "the inventory can be used. What disappeared is listed as damage (by ledger, if the ledger had its own "
            "file). What this inventory lacks does not count as absent; all else counts. For a complete inventory, "
            "collect again when the bookie is quiet"
        )
    if summary.deep is not None:
        details += _describe_deep_counts(summary.deep, dirty=summary.dirty)
    if summary.reused is not None:
        details += _describe_spared(summary.reused, summary.bytes_read)
    notes = [line.strip() for line in details]
    details.append(f"the report: {out / REPORT}")
    if not summary.ledgers:
        details.append(
            "no ledger was found. If the bookie has some: name the folders that bk_server.conf names, not one above"
        )
    result = Result(
        "collect",
        verdict,
        Exit.FOUND if summary.deleted else Exit.DONE if summary.complete else Exit.UNDECIDABLE,
        counts={"ledgers": summary.ledgers, "entries": summary.entries, "damaged": summary.damaged},
        coverage={"complete": summary.complete, "missing": list(summary.missing), "bytes_read": summary.bytes_read},
        details=details,
        following="if the store is lost: kill -STOP the bookie's process on its host, at once, and every other "
        f"bookie's; never -CONT. Copy its disks, and collect it again into another folder than {quote_command(out)}. "
        f"If the cluster is healthy: {_next(out)}"
        if summary.deleted
        else _next(out),
        facts={
            "bookie": summary.bookie,
            "incarnation": summary.incarnation,
            "storage": summary.storage,
            "dirty": summary.dirty,
            "hiding": summary.hiding,
            "disputed": list(summary.disputed),
            "suspect": suspect,
            "deleted": summary.deleted,
            "leftover": summary.leftover,
            "as_of": options.as_of,
            "out": str(out),
            **({} if summary.deep is None else {"deep": asdict(summary.deep)}),
            **({} if summary.reused is None else {"reused": asdict(summary.reused)}),
        },
    )
    _write_page(out, verdict, notes)
    sys.exit(output.show(result))


def _next(out: DatasetPlace) -> str:
    """Name the command that takes all inventories: with the incident file if there is one, else with what was typed."""
    given = carry_options("--passwords")
    if not given or given[0] != INCIDENT:
        given = ["--inventory-dir", str(out.resolve().parent), "--metadata", "URI", "--expect-bookies", "FILE", *given]
    where = f"when every bookie's inventory is in {out.resolve().parent}: "
    return where + quote_command("bkmeta", "recover", *given, "--out", "plan")


def _describe_deep_counts(deep: "DeepCounts", *, dirty: bool | None) -> Iterator[str]:
    """Say what comparing everything gave."""
    yield (
        f"digests: {deep.digests_right} right, {deep.digests_wrong} wrong, {deep.not_checkable} not checkable, of "
        f"{deep.ledgers_not_checkable} ledgers whose password is not known or that have none"
    )
    yield (
        f"entries: {deep.in_index} in the index, {deep.in_logs} in logs ({deep.shadowed} of them older copies), "
        f"{deep.replayed} that only replay of the journals brings"
    )
    yield (
        f"{deep.dangling} are not where the index says ({deep.elsewhere} of them elsewhere in the logs), "
        f"{deep.unindexed} are in logs and lost to the index, {deep.conflicts} differ between copies"
    )
    if deep.digests_wrong:
        yield (
            "a copy whose digest is wrong is still listed, since it tells where entries were placed; `bkmeta verify` "
            "reads every entry once records are back"
        )
    if dirty and (deep.dangling or deep.unindexed):
        yield (
            "if the bookie runs, what it compacted meanwhile looks lost: stop it, or read a snapshot of its disks, and "
            "collect again"
        )


def _describe_spared(reused: "Reused", read: int) -> Iterator[str]:
    """Say what an earlier collection spared."""
    why = f"; {reused.reason}" if reused.reason else ""
    yield f"taken over: {reused.ledgers} ledgers, {reused.files} entry logs and journals; {read} bytes were read{why}"
    if reused.ledgers or reused.files:
        yield (
            f"  from {reused.inventory}, begun {_since(reused.collected)}; the last whole collection was begun "
            f"{_since(reused.whole)}: bits that rot on a disk are seen by the next one, without --since, or by --deep"
        )


def _since(begun: str) -> str:
    """Say when something began, and how long ago that is."""
    then = datetime.fromisoformat(begun)
    minutes = max(0, int((now() - then).total_seconds() // 60))
    days, hours = divmod(minutes // 60, 24)
    age = f"{days} d {hours} h" if days else f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
    return f"{then.isoformat(sep=' ', timespec='seconds')}, {age} ago"


def _damage_lines(damage: "BookieDamage") -> Iterator[str]:
    """Say how much there is of each kind, and where the first are."""
    yield ", ".join(f"{reason.replace('_', ' ')}: {count}" for reason, count in damage.reasons.items())
    yield from map(_describe_place, damage.places)


def _describe_place(place: "DamagePlace") -> str:
    where = place.file + ("" if place.offset is None else f" at byte {place.offset}")
    ledger = "" if place.ledger is None else f", ledger {place.ledger}"
    return f"{where}: {place.reason.replace('_', ' ')}{ledger}" + (f" ({place.detail})" if place.detail else "")


def _collect_over_wire(
    uri: str,
    names: tuple[str, ...] | None,
    wire: "WireOptions",
    passwords: Path | None,
    spark: tuple[str | None, Path | None],
    out: DatasetPlace,
    output: Output,
) -> Result:
    """Ask the bookies of a cluster; on a master, with what its executors are to run."""
    from reconcile.jobs.collect.cluster import ClusterRequest, collect_cluster

    master, python = spark
    request = ClusterRequest(
        uri=uri,
        bookies=names,
        wire=wire,
        passwords=read_passwords(passwords),
        master=master,
        python=python,
        out=out,
        settings=effective_settings(),
    )
    return cluster_result(collect_cluster(request, make_context(output)), out)


def _write_page(out: DatasetPlace, verdict: str, notes: Sequence[str]) -> None:
    from reconcile.report.pages import inventory_page, write_page
    from recovery.dataset import open_dataset

    inventory = open_dataset(out, "inventory")
    write_page(out, lambda: inventory_page(inventory, verdict=verdict, made=now(), notes=notes))
