"""`recover`: inventories, the store and snapshots into a plan."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.incident import is_typed
from reconcile.cli.options import (
    FILE,
    FOLDER,
    bookies_option,
    by_bookie,
    executor_option,
    inventory_options,
    make_context,
    make_output,
    now,
    output_options,
    parse_quorum,
    quote_command,
    read_names,
    read_passwords,
    read_references,
    references_option,
)
from reconcile.cli.output import Output, Result
from reconcile.cli.settings import effective_settings
from reconcile.cli.wording.whole_datasets import tell_if_whole
from reconcile.estimates import Step, estimate_s
from reconcile.estimates import in_words as time_in_words
from reconcile.findings.refusal_texts import describe_reason
from reconcile.jobs.context import connect, start_spark, throttle
from reconcile.words import count_noun, count_released_holds
from recovery.errors import InputError

if TYPE_CHECKING:
    from recovery.codecs.store import Layout
    from recovery.dataset import Dataset

from reconcile.cli.wording.lists import list_names

LAYOUTS: Final = ("flat", "legacy", "hierarchical", "longhierarchical", "longlonghierarchical", "etcd")
"""`recovery.codecs.store.Layout`, for --help without the libraries that it needs."""


TAILS: Final = ("inclusive", "acknowledged", "open")
"""`recovery.infer.search.Tail`, likewise."""


_FEW: Final = 3


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
@bookies_option
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
@click.option(
    "--raise-past",
    type=click.IntRange(0),
    metavar="ID",
    help="Raise id generators past ids up to this one, though they stand far above all others.",
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
    raise_past: int | None,
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
        from reconcile.jobs.collect.disks import collect_all, see
        from reconcile.plan.actions import Passwords
        from reconcile.report.pages import plan_page, write_page
        from reconcile.stores import demand_store_uri
        from recovery.codecs.store import Layout
        from recovery.dataset import COLLECTED, EARLIER, open_dataset, prepare
        from recovery.infer.search import Tail
        from recovery.spark import demand_spark

        if uri is not None:
            demand_store_uri(uri)
        demand_spark(master, python)
        candidates = Passwords.from_candidates(read_passwords(passwords))
        expected = read_names(expect_bookies) if expect_bookies else None
        opened_inventories = job.open_inventories(inventories)
        see(disks)
        for snapshot in snapshots:
            demand_store_uri(snapshot)
    referenced = read_references(references, output)
    prepare(out, "plan", secret=True)
    tell_if_whole(out, "plan")
    with ExitStack() as stack:
        # Spark takes a while to start: what can fail before it is asked first, unless it is needed at once.
        early = stack.enter_context(start_spark(master, python, make_context(output))) if disks else None
        if early is not None:
            with output.progress("collecting", "bookies") as told:
                collected = collect_all(disks, candidates, out / COLLECTED, early, now=now, progress=throttle(told))
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
            raise_past=raise_past,
            settings=effective_settings(),
        )
        output.expect(Step.RECOVER, sum(one.rows("copies") for one in opened_inventories))
        spark = early or stack.enter_context(start_spark(master, python, make_context(output)))
        with output.progress("reconstructing", "parts") as told:
            job.recover(request, out, spark, now=now, progress=throttle(told))
    made = open_dataset(out, "plan")
    result = make_result(made, no_root="" if present else root)
    with output.progress("writing the report", "pages"):
        write_page(out, lambda: plan_page(made, opened_inventories, verdict=result.verdict, made=now()))
    sys.exit(output.show(result))


def _live(uri: str, out: Path, output: Output, inventories: "Sequence[Dataset]") -> "tuple[Dataset, str, bool, Layout]":
    """Capture the store to be repaired, beside the plan; return it, its root, whether that is there, and its layout."""
    from reconcile.check.listing import list_known_ledgers
    from reconcile.jobs.capture import capture_store
    from recovery.codecs.store import Layout
    from recovery.dataset import open_dataset

    with connect(uri, make_context(output)) as opened:
        # What bookies hold and no listing names is asked for before anybody calls it lost.
        summary = capture_store(opened, out / "store", make_context(output), list_known_ledgers(inventories))
        root = opened.root
    if not summary.complete:
        problem = f"could not be read whole ({summary.gaps[0]})"
        raise InputError(uri, problem, "a record that was not seen would be taken for lost: mend the access first")
    if summary.layout is None:
        raise InputError(uri, "has no root, and names no layout", "name it in the URI, e.g. zk+hierarchical://")
    return open_dataset(out / "store", "catalog"), root, summary.root == "present", Layout(summary.layout)


def _earlier(uri: str, out: Path, output: Output) -> "Dataset":
    """Return what a store held earlier as a catalog: a capture as it is, anything else captured beside the plan.

    A catalog with gaps is taken: what it lacks counts as not known, not as absent.
    """
    from reconcile.jobs.capture import capture_store
    from reconcile.stores import catalog_path
    from recovery.dataset import open_dataset

    path = catalog_path(uri)
    if path is not None:
        return open_dataset(path, "catalog")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    with connect(uri, make_context(output)) as opened:
        capture_store(opened, out, make_context(output))
    return open_dataset(out, "catalog")


def make_result(made: "Dataset", *, no_root: str) -> Result:
    """Return what is shown of a plan that was just made; `no_root` is the root that does not exist, if it does not."""
    from reconcile.cli.wording.deletions import deletion_lines
    from reconcile.plan.deletions import group_by_session
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
    verdict = f"{counts['restored']} of {count_noun(absent, 'lost ledger')} {back}"
    if not coverage["scanned"]:
        looked_at = count_noun(counts["looked_at"], "ledger")
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
        verdict += f"; of an earlier plan {count_released_holds(counts['released'])}"
    if counts["held_in_store"]:
        verdict += f"; records of an earlier plan hold {counts['held_in_store']}"
    if missing:
        were = "was" if len(missing) == 1 else "were"
        unseen = f"{count_noun(len(missing), 'bookie')} {were} not looked at, and what only they hold may exist"
        verdict = f"{unseen}: {list_names(missing)}. {verdict}"
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
        f"ledgers on {count_noun(len(coverage['scanned']), 'bookie')}: {counts['ledgers']}",
        f"of these in the store already: {counts['in_store_already']}",
        f"the plan: {count_noun(counts['actions'] - counts['left_alone'], 'write')}, hash {manifest['hash']}",
        f"to write it takes {time_in_words(estimate_s(Step.APPLY, counts['actions'] - counts['left_alone']))}",
        f"the report: {out / REPORT}",
    ]
    if no_root:
        details.append(f"the store has no {no_root}: apply will make it. Is it the root that bk_server.conf names?")
    if missing:
        details.append("collect those bookies and recover again, or go on knowing that their ledgers stay lost or held")
    if coverage["not_named"]:
        details.append(
            f"collected, but not expected: {list_names(coverage['not_named'])}. Is the list of bookies right?"
        )
    if coverage["scanned"] and not coverage["members_known_from"]:
        details.append(
            "name every bookie of the cluster in a file, one id a line, and run again: --expect-bookies FILE"
        )
    if coverage.get("cluster_not_named"):
        details.append(
            f"no instance id, so nothing shows of which cluster it is: {list_names(coverage['cluster_not_named'])}"
        )
    if coverage["not_complete"]:
        details.append(
            f"disks not read completely (these bookies get no cookie): {list_names(coverage['not_complete'])}"
        )
    reasons = sorted(manifest["reasons"].items(), key=lambda reason: -reason[1])
    details += [f"held: {count}, {describe_reason(reason)} ({reason})" for reason, count in reasons]
    if counts["disagreements"]:
        places = f"{count_noun(counts['disagreements'], 'place')}, {counts['critical']} of them critical"
        details.append(f"the store and the bookies disagree in {places}: {out}/findings")
    found = {name: count for name, count in manifest["found"].items() if name != "HELD"}
    if found:
        listed = ", ".join(f"{name} {count}" for name, count in sorted(found.items()))
        details.append(f"findings: {listed}: {out}/findings, bkmeta explain LEDGER")
    deletions = group_by_session(made)
    if manifest["mass_deletion"]:
        details.append("so many ledgers were deleted that they are held, not left deleted, until a person says which")
    details += deletion_lines(made, deletions)
    if manifest["mass_let_go"]:
        details.append(
            "so many ledgers were let go of by their owners that they are held, not left deleted: give the owners' "
            "records of before as --references, if that was the catastrophe"
        )
    sides = ", ".join(f"{count} {SHORT[Relation(name)]}" for name, count in sorted(manifest["sides"].items()))
    details.append(f"looked at: {count_noun(counts['looked_at'], 'ledger')}: {sides}")
    if counts["held_in_store"]:
        details.append(f"held by records of an earlier plan, until they are resolved: {counts['held_in_store']}")
    if counts.get("ids_not_raised_past"):
        details.append(
            f"{counts['ids_not_raised_past']} ledgers have ids above {RAISE_LIMIT:,}, and the id generator is not "
            "raised past them (it takes hours): BookKeeper skips an id that has a record, so none is given out twice"
        )
    if counts.get("ids_far_above"):
        far = counts["ids_far_above"]
        details.append(
            f"{count_noun(far, 'id')} on bookies {'stands' if far == 1 else 'stand'} far above all others, and the id "
            f"generator is not raised past {'it' if far == 1 else 'them'}: perhaps a wrong bit made "
            f"{'it' if far == 1 else 'them'}. Look at the finding ID_FAR_ABOVE; if the ledger is real: --raise-past ID"
        )
    if counts.get("counters_not_raised_past"):
        details.append(
            f"an id generator stood above {RAISE_LIMIT:,} and is not raised that far (it takes hours): ids of ledgers "
            "that were deleted since can be given out again"
        )
    if counts["in_store_not_on_bookies"]:
        details.append(f"in the store, on no bookie looked at: {counts['in_store_not_on_bookies']}")
    following = "do not apply it, report it" if invalid else quote_command("bkmeta", "plan", "show", out)
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
            details.append(f"not referenced, owner not known: {list_names(alone[:_FEW])}; all: {out}/sides")
        if said["unreadable"] or said["gaps"]:
            details.append(f"{said['unreadable'] + said['gaps']} records of references were not read: {out}/findings")
    keys = ("hash", "reasons", "prior", "sides", "found", "mass_deletion", "references")
    facts = {name: manifest[name] for name in keys} | {"deletions": [one.to_json() for one in deletions]}
    return Result("recover", verdict, code, counts, coverage, details, following, {"plan": str(out), **facts})
