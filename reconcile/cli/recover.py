"""The commands of a restore: collect, capture, recover, apply."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.incident import is_typed
from reconcile.cli.options import (
    FILE,
    FOLDER,
    by_bookie,
    connected,
    executor_option,
    expected_bookies_option,
    inventory_options,
    make_output,
    now,
    output_options,
    parse_quorum,
    quoted,
    read_names,
    read_passwords,
    read_references,
    reason_option,
    references_option,
    store_auth,
)
from reconcile.cli.output import Output, Result, broken_off, throttled
from reconcile.cli.settings import effective_settings
from reconcile.cli.spark import started
from reconcile.errors import GuardRefusedError, PlanError
from reconcile.findings.refusal_texts import in_words
from reconcile.jobs.estimates import Step, estimate_s
from reconcile.jobs.estimates import in_words as time_in_words
from reconcile.printable import printable
from reconcile.words import counted, released_holds
from recovery.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from backends.registry import OpenStore
    from reconcile.write.apply import Applied, Tally
    from recovery.codecs.store import Layout
    from recovery.dataset import Dataset

LAYOUTS: Final = ("flat", "legacy", "hierarchical", "longhierarchical", "longlonghierarchical", "etcd")
"""`recovery.codecs.store.Layout`, for --help without the libraries that it needs."""
TAILS: Final = ("inclusive", "acknowledged", "open")
"""`recovery.infer.search.Tail`, likewise."""
_SHOWN: Final = 10
_FEW: Final = 3
_TYPED: Final = 8
_FROM_SNAPSHOT: Final = "from-snapshot"


def _some(names: list[str]) -> str:
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "the whole store was read",
        Exit.FAILED: "the store did not answer, or the disk of --out is full",
        Exit.USAGE: "a URI, a layout or a folder that cannot be used",
        Exit.FOUND: "there is no ledgers root: the catalog is empty",
        Exit.UNDECIDABLE: "parts of the store could not be read; the catalog says which",
    },
    epilog="Example: BKMETA_ZK_AUTH=me:secret bkmeta capture --metadata zk+hierarchical://zk1:2181/ledgers --out cat",
)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store, named as in bk_server.conf.")
@click.option(
    "--at", metavar="ZXID|TIME", help="A point in time: a transaction number or an ISO 8601 time. [default: the latest]"
)
@click.option(
    "--max-ops-s",
    "ops_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="At most N nodes are asked of a live ZooKeeper in a second: a value, names, or rights each count one.",
)
@click.option("--out", type=FOLDER, required=True, help="A new folder for the catalog; it will hold passwords.")
@output_options
def capture(uri: str, at: str | None, ops_s: float | None, out: Path, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Read a metadata store into a catalog: every ledger's record, and the nodes beside them.

    Run daily it is the cheapest insurance there is: `recover --snapshot catalog:///DIR` takes it. Stores that remember
    what happened (files of a ZooKeeper, etcd) give each ledger's history, too.
    """
    output = make_output(shared)
    with (
        broken_off(f"{out} is not a catalog yet: run the same command again"),
        connected(uri, output, at=at, ops_s=ops_s) as opened,
    ):
        summary = capture_into(opened, out, output, at=at)
    complete, present = bool(summary["complete"]), summary["root"] == "present"
    ledgers, bad = summary["ledgers"], summary["unparsable"]
    found = f"{counted(ledgers, 'ledger')} captured" if present else "the ledgers root does not exist"
    verdict = found if complete else f"{found}, but not all of the store could be read"
    result = Result(
        "capture",
        verdict + (f"; {counted(bad, 'record')} cannot be parsed" if bad else ""),
        Exit.UNDECIDABLE if not complete else Exit.DONE if present else Exit.FOUND,
        counts={"ledgers": ledgers, "unparsable": bad, "nodes": summary["nodes"], "changes": summary["changes"]},
        coverage={
            **{name: summary[name] for name in ("complete", "root", "gaps", "notes", "since_txn", "txn")},
            "at": summary["at"].isoformat(),
        },
        details=[
            *([] if summary["since_txn"] is None else [_between(summary["since_txn"], summary["txn"])]),
            *(f"not read: {gap}" for gap in summary["gaps"][:_SHOWN]),
            *(f"note: {note}" for note in summary["notes"][:_SHOWN]),
        ],
        following="keep it somewhere else; after a loss, recover takes it: "
        + quoted("--snapshot", f"catalog://{out.resolve()}"),
        facts={"out": str(out), "layout": summary["layout"], "instance_id": summary["instance_id"]},
    )
    sys.exit(output.show(result))


def _between(since: int, until: int) -> str:
    if since == until:
        return f"as it was at transaction {until:#x}: nothing changed while it was read"
    return f"read between transactions {since:#x} and {until:#x}: what happened there is in it or not"


def capture_into(
    opened: "OpenStore", out: Path, output: Output, known: "Iterable[pa.Table]" = (), *, at: str | None = None
) -> Mapping[str, Any]:
    """Read an open store into a catalog; return what `recovery.capture.live.CaptureSummary` says.

    Args:
        opened: the store.
        out: a new folder.
        output: is told how far it is.
        known: scope and ledger of ledgers that somebody knows of: asked for by key where no listing names them.
        at: the point in time that a person named; None: the latest.
    """
    from recovery.capture.live import capture as run
    from recovery.codecs.store import Layout
    from recovery.dataset import DatasetWriter

    named = Layout(opened.layout_hint) if opened.layout_hint else None
    binding = {"uri": opened.uri, "root": opened.root} | ({} if at is None else {"at": at})
    with (
        DatasetWriter(out, "catalog", binding=binding, secret=True) as writer,
        output.progress("reading the store", "ledgers") as told,
    ):
        summary = run(opened.store, opened.root, named, writer, now=now, progress=throttled(told), known=known)
    return {name: getattr(summary, name) for name in type(summary).__slots__}


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "all lost ledgers come back",
        Exit.FAILED: "the store did not answer, Spark failed, a disk is full, or the sums do not add up (INVALID)",
        Exit.USAGE: "inventories, URIs or files that cannot be used; no Java, no Spark",
        Exit.FOUND: "some are held or wait for a person, now or since an earlier plan; somebody deleted some that "
        "bookies still have; or a critical finding",
        Exit.UNDECIDABLE: "bookies that were expected were not looked at, or no bookie was",
    },
    # Disks that were collected already are not collected again.
    not_of_incident=frozenset({"--disk"}),
    epilog="Example: bkmeta recover --inventory inv/bk1 --inventory inv/bk2 --inventory inv/bk3 "
    "--metadata zk+hierarchical://zk1:2181/ledgers --expect-bookies bookies.txt --passwords pw.txt --out plan",
)
@inventory_options("One bookie's inventory.")
@click.option(
    "--disk",
    "disks",
    multiple=True,
    callback=by_bookie,
    metavar="ID=DIR",
    help="A bookie's folder, mounted here (and on Spark's workers): collected first, beside the plan.",
)
@click.option("--metadata", "uri", metavar="URI", help="The store to be repaired: what it lacks is proposed.")
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    help="Of the store to be written, where --metadata is not given.",
)
@click.option(
    "--snapshot",
    "snapshots",
    multiple=True,
    metavar="URI",
    help="What the store held earlier: catalog:///DIR, zkfiles:///DIR, etcdfile:///FILE, or a capture's folder.",
)
@click.option("--passwords", type=FILE, help="Candidates, one a line; mode 0600.")
@expected_bookies_option
@click.option("--default-quorum", callback=parse_quorum, metavar="E/W/A", help="Where nothing else decides.")
@references_option
@click.option(
    "--tail",
    type=click.Choice(TAILS),
    default=TAILS[0],
    show_default=True,
    help="Where a ledger is closed whose last entries may not have been acknowledged: at the last that anybody could "
    "have read; at the last that can have been acknowledged, where A is known; or left open where that is safe.",
)
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@executor_option
@click.option("--out", type=FOLDER, required=True, help="A new folder for the plan; it will hold passwords.")
@output_options
def recover(
    inventories: tuple[str, ...],
    disks: dict[str, list[Path]],
    uri: str | None,
    layout: str | None,
    snapshots: tuple[str, ...],
    passwords: Path | None,
    expect_bookies: Path | tuple[str, ...] | None,
    default_quorum: tuple[int, int, int] | None,
    references: tuple[str, ...],
    tail: str,
    master: str,
    python: Path | None,
    out: Path,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Turn inventories into a plan that brings lost ledger metadata back. Writes nothing but the plan.

    The store (--metadata) and what it held earlier (--snapshot) are compared with what bookies show, ledger by ledger;
    without an inventory they are compared with each other, and records that a store lacks which has none are proposed.
    """
    output = make_output(shared)
    if not inventories and not disks and not snapshots:
        raise click.UsageError("give --inventory or --disk; or --snapshot, to take only what it had")
    if layout is not None and not is_typed("uri"):
        uri = None
    if (uri is None) == (layout is None):
        raise click.UsageError("give --metadata, or --layout for a plan that is made without the store")
    # Loading what is needed takes a second, and Spark several: nobody should look at an empty line that long.
    with output.progress("before Spark starts: looking at what was given", "inventories"):
        from reconcile.jobs import recover as job
        from reconcile.jobs.collect_disks import collect_all, see
        from reconcile.plan.action_rows import Passwords
        from reconcile.report.pages import plan_page, write_page
        from reconcile.stores import demand_store_uri
        from recovery.codecs.store import Layout
        from recovery.dataset import COLLECTED, EARLIER, open_dataset, prepare
        from recovery.infer.search import Tail
        from recovery.spark import demand_spark

        if uri is not None:
            demand_store_uri(uri)
        demand_spark(master, python)
        candidates = Passwords.of(read_passwords(passwords))
        expected = read_names(expect_bookies) if expect_bookies else None
        opened_inventories = job.open_inventories(inventories)
        see(disks)
        for snapshot in snapshots:
            demand_store_uri(snapshot)
    referenced = read_references(references, output)
    prepare(out, "plan", secret=True)
    with broken_off(f"{out} is not a plan yet: run the same command again"), ExitStack() as stack:
        # Spark takes a while to start: what can fail before it is asked first, unless it is needed at once.
        early = stack.enter_context(started(master, python, output)) if disks else None
        if early is not None:
            with output.progress("collecting", "bookies") as told:
                collected = collect_all(disks, candidates, out / COLLECTED, early, now=now, progress=throttled(told))
            opened_inventories = job.open_inventories((*inventories, *collected))
        opened_snapshots = tuple(
            _earlier(snapshot, out / EARLIER / str(number), output) for number, snapshot in enumerate(snapshots, 1)
        )
        live, root, present, target = (
            _live(uri, out, output, opened_inventories) if uri else (None, "", True, Layout(str(layout)))
        )
        request = job.Request(
            inventories=opened_inventories,
            live=live,
            snapshots=opened_snapshots,
            layout=target,
            root=root,
            passwords=candidates,
            expected=expected,
            default_quorum=default_quorum,
            tail=Tail(tail),
            references=referenced,
            settings=effective_settings(),
        )
        output.expect(Step.RECOVER, sum(one.rows("copies") for one in opened_inventories))
        spark = early or stack.enter_context(started(master, python, output))
        with output.progress("reconstructing", "parts") as told:
            job.recover(request, out, spark, now=now, progress=throttled(told))
    made = open_dataset(out, "plan")
    result = _recovered(made, no_root="" if present else root)
    with broken_off(f"the plan {out} is whole, its report is not"), output.progress("writing the report", "pages"):
        write_page(out, lambda: plan_page(made, opened_inventories, verdict=result.verdict, made=now()))
    sys.exit(output.show(result))


def _live(uri: str, out: Path, output: Output, inventories: "Sequence[Dataset]") -> "tuple[Dataset, str, bool, Layout]":
    """Capture the store to be repaired, beside the plan; return it, its root, whether that is there, and its layout."""
    from reconcile.check.listing import known_ledgers
    from recovery.codecs.store import Layout
    from recovery.dataset import open_dataset

    with connected(uri, output) as opened:
        # What bookies hold and no listing names is asked for before anybody calls it lost.
        summary = capture_into(opened, out / "store", output, known_ledgers(inventories))
        root = opened.root
    if not summary["complete"]:
        problem = f"could not be read whole ({summary['gaps'][0]})"
        raise InputError(uri, problem, "a record that was not seen would be taken for lost: mend the access first")
    if summary["layout"] is None:
        raise InputError(uri, "has no root, and names no layout", "name it in the URI, e.g. zk+hierarchical://")
    return open_dataset(out / "store", "catalog"), root, summary["root"] == "present", Layout(summary["layout"])


def _earlier(uri: str, out: Path, output: Output) -> "Dataset":
    """Return what a store held earlier as a catalog: a capture as it is, anything else captured beside the plan.

    A catalog with gaps is taken: what it lacks counts as not known, not as absent.
    """
    from reconcile.stores import catalog_path
    from recovery.dataset import open_dataset

    path = catalog_path(uri)
    if path is not None:
        return open_dataset(path, "catalog")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    with connected(uri, output) as opened:
        capture_into(opened, out, output)
    return open_dataset(out, "catalog")


def _recovered(made: "Dataset", *, no_root: str) -> Result:
    from reconcile.cli.deletions import deletion_lines
    from reconcile.compare.deletions import by_session
    from reconcile.rules.sides import SHORT, Relation
    from reconcile.rules.used_ids import RAISE_LIMIT
    from recovery.dataset import REPORT

    manifest, out = made.manifest, Path(made.path)

    counts, coverage = manifest["counts"], manifest["coverage"]
    settled = counts["restored"] + counts["held"] + counts["waiting"] + counts["deleted"]
    judged = sum(counts[name] for name in ("clean", "skipped", "undecided", "with_findings"))
    invalid = settled + counts["in_store_already"] != counts["ledgers"] or judged != counts["looked_at"]
    missing = coverage["not_scanned"]
    absent = counts["ledgers"] - counts["in_store_already"]
    back = "comes back" if counts["restored"] == 1 else "come back"
    verdict = f"{counts['restored']} of {counted(absent, 'lost ledger')} {back}"
    if not coverage["scanned"]:
        looked_at = counted(counts["looked_at"], "ledger")
        verdict = f"{looked_at} compared, {counts['with_findings']} with findings; no bookie was looked at"
        if counts["restored"]:
            verdict += f"; {counts['restored']} {back} on an earlier catalog's word alone"
    if counts["deleted"]:
        stay = "stays" if counts["deleted"] == 1 else "stay"
        verdict += f"; {counts['deleted']} that somebody deleted {stay} deleted unless you choose otherwise"
    if counts["held"]:
        verdict += "; 1 is held: its" if counts["held"] == 1 else f"; {counts['held']} are held: their"
        verdict += " data is kept, and nobody can read it yet"
    if counts.get("released"):
        verdict += f"; of an earlier plan {released_holds(counts['released'])}"
    if counts["held_in_store"]:
        verdict += f"; records of an earlier plan hold {counts['held_in_store']}"
    if missing:
        were = "was" if len(missing) == 1 else "were"
        unseen = f"{counted(len(missing), 'bookie')} {were} not looked at, and what only they hold may exist"
        verdict = f"{unseen}: {_some(missing)}. {verdict}"
    elif coverage["scanned"] and not coverage["members_known_from"]:
        verdict = f"nothing says which bookies the cluster has, so other ledgers may exist. {verdict}"
    if invalid:
        verdict = f"INVALID, the sums do not add up: {verdict}"
    code = Exit.DONE
    if invalid:
        code = Exit.FAILED
    elif any(counts[name] for name in ("held", "waiting", "held_in_store", "critical", "deleted")):
        code = Exit.FOUND
    elif missing or not coverage["scanned"]:
        code = Exit.UNDECIDABLE
    details = [
        f"ledgers on {counted(len(coverage['scanned']), 'bookie')}: {counts['ledgers']}",
        f"of these in the store already: {counts['in_store_already']}",
        f"the plan: {counted(counts['actions'] - counts['left_alone'], 'write')}, hash {manifest['hash']}",
        f"to write it takes {time_in_words(estimate_s(Step.APPLY, counts['actions'] - counts['left_alone']))}",
        f"the report: {out / REPORT}",
    ]
    if no_root:
        details.append(f"the store has no {no_root}: apply will make it. Is it the root that bk_server.conf names?")
    if missing:
        details.append("collect those bookies and recover again, or go on knowing that their ledgers stay lost or held")
    if coverage["not_named"]:
        details.append(f"collected, but not expected: {_some(coverage['not_named'])}. Is the list of bookies right?")
    if coverage["scanned"] and not coverage["members_known_from"]:
        details.append(
            "name every bookie of the cluster in a file, one id a line, and run again: --expect-bookies FILE"
        )
    if coverage.get("cluster_not_named"):
        details.append(
            f"no instance id, so nothing shows of which cluster it is: {_some(coverage['cluster_not_named'])}"
        )
    if coverage["not_complete"]:
        details.append(f"disks not read completely (these bookies get no cookie): {_some(coverage['not_complete'])}")
    reasons = sorted(manifest["reasons"].items(), key=lambda reason: -reason[1])
    details += [f"held: {count}, {in_words(reason)} ({reason})" for reason, count in reasons]
    if counts["disagreements"]:
        places = f"{counted(counts['disagreements'], 'place')}, {counts['critical']} of them critical"
        details.append(f"the store and the bookies disagree in {places}: {out}/findings")
    found = {name: count for name, count in manifest["found"].items() if name != "HELD"}
    if found:
        listed = ", ".join(f"{name} {count}" for name, count in sorted(found.items()))
        details.append(f"findings: {listed}: {out}/findings, bkmeta explain LEDGER")
    deletions = by_session(made)
    if manifest["mass_deletion"]:
        details.append("so many ledgers were deleted that they are held, not left deleted, until a person says which")
    details += deletion_lines(made, deletions)
    if manifest["mass_let_go"]:
        details.append(
            "so many ledgers were let go of by their owners that they are held, not left deleted: give the owners' "
            "records of before as --references, if that was the catastrophe"
        )
    sides = ", ".join(f"{count} {SHORT[Relation(name)]}" for name, count in sorted(manifest["sides"].items()))
    details.append(f"looked at: {counted(counts['looked_at'], 'ledger')}: {sides}")
    if counts["held_in_store"]:
        details.append(f"held by records of an earlier plan, until they are resolved: {counts['held_in_store']}")
    if counts.get("ids_not_raised_past"):
        details.append(
            f"{counts['ids_not_raised_past']} ledgers have ids above {RAISE_LIMIT:,}, and the id generator is not "
            "raised past them (it takes hours): BookKeeper skips an id that has a record, so none is given out twice"
        )
    if counts.get("counters_not_raised_past"):
        details.append(
            f"an id generator stood above {RAISE_LIMIT:,} and is not raised that far (it takes hours): ids of ledgers "
            "that were deleted since can be given out again"
        )
    if counts["in_store_not_on_bookies"]:
        details.append(f"in the store, on no bookie looked at: {counts['in_store_not_on_bookies']}")
    following = "do not apply it, report it" if invalid else quoted("bkmeta", "plan", "show", out)
    said = manifest["references"]
    if said:
        details.append(
            f"references name {said['referenced']} ledgers that are there, and {said['referenced_not_found']} that are "
            f"not; {said['unreferenced']} ledgers on bookies are in no reference"
        )
        if said["some_unreferenced"]:
            alone = [
                f"{one['ledger']} (near {', '.join(one['neighbours']) or 'none'})" for one in said["some_unreferenced"]
            ]
            details.append(f"not referenced, owner not known: {_some(alone[:_FEW])}; all: {out}/sides")
        if said["unreadable"] or said["gaps"]:
            details.append(f"{said['unreadable'] + said['gaps']} records of references were not read: {out}/findings")
    names = ("hash", "reasons", "prior", "sides", "found", "mass_deletion", "references")
    facts = {name: manifest[name] for name in names} | {"deletions": [one.to_json() for one in deletions]}
    return Result("recover", verdict, code, counts, coverage, details, following, {"plan": str(out), **facts})


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "all was written and read back",
        Exit.FAILED: "the store did not answer, or the journal's disk is full, before anything was written",
        Exit.USAGE: "a plan, a journal or a URI that cannot be used",
        Exit.REFUSED: "a guard refused: not confirmed, another cluster's root, bookies that are running or were not "
        "looked at, rights that nothing names",
        Exit.PARTLY: "stopped midway, or keys were left as they are: run it again with --resume",
    },
    epilog="Example: bkmeta apply plan --metadata zk+hierarchical://zk1:2181/ledgers --confirm 3f9a61c07b2e\n\n"
    "The hash is printed by `bkmeta recover` and `bkmeta plan show`; its first 8 digits are enough.",
)
@click.argument("plan", type=FOLDER)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store to be written.")
@click.option("--confirm", metavar="HASH", help="The plan's hash; asked for on a terminal if it is not given.")
@click.option(
    "--acl",
    metavar="SPEC|from-snapshot",
    help="Rights of created keys, scheme:id:perms,…; or those that the plan names. [default: open where the store is]",
)
@click.option("--accept-unseen", type=int, default=0, metavar="N", help="So many bookies were not looked at.")
@click.option("--accept-unfrozen", is_flag=True, help="Write although bookies are registered in this root.")
@click.option("--wave", type=click.IntRange(1), metavar="N", help="Only this wave of a plan that was split; in order.")
@click.option("--journal", type=FOLDER, help="Where every write is recorded. [default: PLAN/journal]")
@click.option("--resume", is_flag=True, help="Go on with the journal that is there.")
@reason_option
@output_options
def apply(
    plan: Path,
    uri: str,
    confirm: str | None,
    acl: str | None,
    accept_unseen: int,
    accept_unfrozen: bool,  # noqa: FBT001 - click's option
    wave: int | None,
    journal: Path | None,
    resume: bool,  # noqa: FBT001 - click's option
    reason: str | None,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Write what PLAN proposes, and nothing over anything. WRITES to the store.

    What is absent is created; what stands at a key already is left as it is and listed. Every write is journalled
    before and after, and read back; a run that was stopped is gone on with by --resume.
    """
    from reconcile.cli.targets import writes_of
    from reconcile.plan.plan_reader import open_whole
    from reconcile.stores import demand_same_keys, demand_store_uri
    from reconcile.write import apply as engine

    output = make_output(shared)
    dataset, seen = open_whole(plan)
    # One of few ledgers may have waves without any.
    if wave is not None and wave not in {
        *seen.waves,
        *(row[0] for row in dataset.manifest["binding"].get("waves", ())),
    }:
        raise PlanError(
            str(plan), f"has no wave {wave}", "see its waves: bkmeta plan show; bkmeta plan split makes some"
        )
    demand_store_uri(uri)
    _demand_confirmation(dataset, seen.hash, confirm, accept_unseen)
    if acl == _FROM_SNAPSHOT:
        _demand_rights(dataset)
    folder = journal or plan / "journal"
    more = [] if wave is None else ["--wave", str(wave)]
    more += ["--journal", str(journal)] if journal else []
    more += ["--acl", acl] if acl else []
    more += ["--accept-unseen", str(accept_unseen)] if accept_unseen else []
    more += ["--accept-unfrozen"] if accept_unfrozen else []
    more += ["--reason", reason] if reason else []
    more += ["--confirm", seen.hash]
    again = quoted("bkmeta", "apply", plan, "--metadata", uri, *more)
    stopped = broken_off(f"what was written is recorded in {folder}, go on: {again} --resume")
    with stopped, connected(uri, output, writable=True) as opened:
        wanted = dataset.manifest["binding"]["root"]
        if wanted and wanted != opened.root:
            problem = f"the plan was made for the root {wanted}"
            raise GuardRefusedError(opened.uri, problem, "apply it there; to try it elsewhere: bkmeta rehearse")
        demand_same_keys(opened, str(dataset.manifest["binding"].get("layout") or ""), acl)
        if opened.layout_hint == "etcd" and not accept_unfrozen:
            engine.demand_stopped(str(bookie) for bookie, *_ in dataset.manifest["binding"].get("bookies", ()))
        withheld = "ledgers of the plan wait for a person" if dataset.manifest["binding"]["cookies_held_back"] else None
        options = engine.Options(
            plan_hash=seen.hash,
            acl=engine.decide_rights(opened.store, opened.root) if acl is None else _named_rights(acl),
            accept_unfrozen=accept_unfrozen,
            withhold_cookies=withheld,
            resume=resume,
            wave=wave,
            reason=reason,
            principals=_principals() if opened.layout_hint != "etcd" else None,
            instance_ids=dataset.manifest["binding"].get("instance_ids", ()),
        )
        output.expect(Step.APPLY, writes_of(dataset))
        with output.progress("writing", "writes") as told:
            applied = engine.apply(
                lambda: dataset.batches("actions"),
                opened.store,
                opened.root,
                folder,
                options,
                now=now,
                progress=throttled(told),
            )
    sys.exit(output.show(_applied(applied, plan, uri, again)))


def _demand_confirmation(dataset: "Dataset", plan_hash: str, confirm: str | None, accept_unseen: int) -> None:
    counts, unseen = dataset.manifest["counts"], dataset.manifest["coverage"].get("not_scanned") or []
    if confirm is None and sys.stdin.isatty():
        wanted = f"{counted(counts['restored'], 'record')} and {counted(counts['held'], 'hold')} will be created"
        if counts.get("released"):
            wanted += f", {released_holds(counts['released'])}"
        click.echo(f"{wanted}; hash {plan_hash}", err=True)
        confirm = click.prompt("type the first 8 digits of the hash to go on", err=True)
        if len(confirm) < _TYPED:
            raise click.Abort
        if unseen and not accept_unseen:
            click.echo(f"not looked at, and what only they hold will be deleted: {printable(_some(unseen))}", err=True)
            accept_unseen = click.prompt("type how many bookies were not looked at to go on", type=int, err=True)
    if confirm is None:
        problem = "is not confirmed, and there is no terminal to ask on"
        raise GuardRefusedError(dataset.path, problem, f"review it, then add: --confirm {plan_hash}")
    if not plan_hash.startswith(confirm.lower()) or len(confirm) < _TYPED:
        raise GuardRefusedError(dataset.path, "has another hash than the one confirmed", "review this plan first")
    if len(unseen) != accept_unseen:
        raise GuardRefusedError(
            dataset.path,
            f"was made without {counted(len(unseen), 'bookie')} ({_some(unseen)}): what only they hold would be deleted"
            if unseen
            else "was made with every bookie",
            f"collect them and recover again, or accept that: --accept-unseen {len(unseen)}"
            if unseen
            else "leave out --accept-unseen",
        )


def _demand_rights(dataset: "Dataset") -> None:
    """Refuse a plan that names no rights for what it creates."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lacking = 0
    for rows in dataset.batches("actions"):
        made = pc.is_in(rows["op"], value_set=pa.array(["create", "hold"]))
        lacking += int(pc.sum(pc.and_(made, pc.is_null(rows["acl"]))).as_py() or 0)
    if lacking:
        problem = f"names no rights for {lacking} of the keys that it creates"
        remedy = "name them in the plan: bkmeta plan edit --acl-of catalog:///DIR, or --acl SPEC"
        raise GuardRefusedError(dataset.path, problem, remedy)


def _principals() -> list[str]:
    """Return whom a ZooKeeper takes this session for, besides anybody."""
    from backends.zookeeper import digest_principal
    from reconcile.stores import SASL_VARIABLE, user_and_password

    auth, sasl = store_auth(), user_and_password(SASL_VARIABLE)
    return [*([digest_principal(auth)] if auth else []), *([f"sasl:{sasl[0]}"] if sasl else [])]


def _named_rights(acl: str) -> str | None:
    return None if acl == _FROM_SNAPSHOT else acl


def _tallied(tally: "Tally") -> str:
    """Say what became of the writes of one kind: what is none of them is not said."""
    parts = (
        (tally.written, "written"),
        (tally.there, "there already"),
        (tally.conflicts, "left: something else stands there"),
        (tally.withheld, "withheld"),
    )
    return ", ".join(f"{count} {what}" for count, what in parts if count) or "none"


def _applied(applied: "Applied", plan: Path, uri: str, again: str) -> Result:
    tallies = applied.tallies
    created = sum(t.written for (kind, op), t in tallies.items() if kind == "ledger" and op in ("create", "hold"))
    changed = sum(t.written for (kind, op), t in tallies.items() if kind == "ledger" and op in ("replace", "remove"))
    there = sum(t.there for (kind, _), t in tallies.items() if kind == "ledger")
    conflicts = sum(t.conflicts for t in tallies.values())
    was = "was" if there == 1 else "were"
    verdict = f"{counted(created, 'ledger record')} written and read back, {there} {was} there already"
    if changed:
        verdict += f", {changed} replaced or removed"
    if conflicts:
        keys = "1 key holds" if conflicts == 1 else f"{conflicts} keys hold"
        verdict += f"; {keys} something else: left as found"
    if applied.changed_count:
        keys = "1 key no longer holds" if applied.changed_count == 1 else f"{applied.changed_count} keys no longer hold"
        verdict = f"{keys} what was written: somebody else writes here. {verdict}"
    details = [f"{op} {kind}: {_tallied(t)}" for (kind, op), t in sorted(tallies.items())]
    details += [f"left as it is: {c.key} ({c.reason})" for c in applied.conflicts[:_SHOWN]]
    details += [f"changed since: {key}" for key in applied.changed[:_SHOWN]]
    if applied.cookies_withheld:
        details.append(f"no cookies were written: {applied.cookies_withheld}")
    details.append(f"every write is recorded in {applied.journal}")
    following = quoted("bkmeta", "verify", plan, "--metadata", uri, "--sample", "all", "--disk", "ID=DIR")
    return Result(
        "apply",
        verdict,
        applied.exit_code,
        counts={f"{op} {kind}": asdict(tally) for (kind, op), tally in sorted(tallies.items())},
        coverage={"read_back": applied.checked, "changed": applied.changed_count},
        details=details,
        following=following if not applied.exit_code else f"look into the conflicts above, then: {again} --resume",
        facts={
            "journal": str(applied.journal),
            "conflicts": [asdict(conflict) for conflict in applied.conflicts],
            "cookies_withheld": applied.cookies_withheld,
        },
    )
