"""`recover`: inventories, the store and snapshots into a plan."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.approval import approval_option, take_approvals
from reconcile.cli.command import Command, Exit
from reconcile.cli.incident import is_typed
from reconcile.cli.option_groups.subtrees import read_choice, subtree_options
from reconcile.cli.options import (
    FILE,
    LAYOUTS,
    PLACE,
    TAILS,
    add_moment,
    aliases_option,
    bookies_option,
    by_bookie,
    executor_option,
    inventory_options,
    lost_option,
    make_context,
    make_output,
    master_option,
    moment_option,
    output_options,
    parse_quorum,
    quorums_option,
    quote_command,
    read_aliases,
    read_names,
    read_passwords,
    references_option,
)
from reconcile.cli.output import Result
from reconcile.cli.settings import effective_settings
from reconcile.cli.wording.whole_datasets import tell_if_whole
from reconcile.estimates import EstimatedStep, estimate_s
from reconcile.estimates import in_words as time_in_words
from reconcile.findings.refusal_texts import describe_reason
from reconcile.words import count_noun, list_names
from recovery.place import DatasetPlace, to_place

if TYPE_CHECKING:
    from reconcile.jobs.recover import Recovered
    from reconcile.plan.bookie_starts import BookieStart
    from reconcile.plan.manifest import PlanCounts, PlanManifest, ReferenceCounts
    from reconcile.plan.views.deletions import SessionDeletions
    from recovery.dataset import Dataset
    from recovery.model.coverage import Coverage

_FEW: Final = 3
_SAID: Final = ("HELD", "GUARDED")
"""Findings that are counted by their reasons."""


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "all lost ledgers come back",
        Exit.FAILED: "the store did not answer, Spark failed, a disk is full, or the sums do not add up (INVALID)",
        Exit.USAGE: "inventories, URIs or files that cannot be used; no Java, no Spark",
        Exit.FOUND: "ledgers are guarded, held or waiting, now or since an earlier plan; a client deleted ledgers "
        "that bookies still have; nodes of upper layers differ from the snapshot's; or a critical finding",
        Exit.UNDECIDABLE: "expected bookies were not read, or no bookie was read",
        Exit.REFUSED: "too few people approved that disks are lost, where the cluster's policy asks for that",
    },
    # Disks that were collected already are not collected again.
    not_of_incident=frozenset({"--disk"}),
    epilog="Example: bkmeta recover --inventory inv/bk1 --inventory inv/bk2 --inventory inv/bk3 "
    "--metadata zk+hierarchical://zk1:2181/ledgers --expect-bookies bookies.txt --passwords pw.txt --out plan",
)
@inventory_options("One bookie's inventory, or a table of entries.")
@click.option(
    "--disk",
    "disks",
    multiple=True,
    callback=by_bookie,
    metavar="ID=DIR",
    help="A bookie's folder, mounted here (and on Spark's workers): collected first, beside the plan.",
)
@click.option(
    "--metadata", "uri", metavar="URI", help="The store to repair: the plan proposes the records that it lacks."
)
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    help="Layout of the store to write, if --metadata is not given.",
)
@moment_option
@click.option(
    "--snapshot",
    "snapshots",
    multiple=True,
    metavar="PATH|URI",
    help="What the store held earlier: ZooKeeper's folder, one snapshot or log of it, etcd's .db, a tar of these, a "
    "capture's folder, or a URI.",
)
@subtree_options
@click.option("--passwords", type=FILE, help="Candidate passwords, one a line; mode 0600.")
@bookies_option
@click.option(
    "--default-quorum",
    callback=parse_quorum,
    metavar="E/W/A",
    help="Quorums of ledgers for which nothing else decides.",
)
@quorums_option
@references_option
@aliases_option
@click.option(
    "--tombstones",
    multiple=True,
    metavar="URI",
    help="A store, or a copy of one, with tombstones: the ledgers that they name are not restored. Tombstones in "
    "--metadata and --snapshot are found without this option.",
)
@click.option(
    "--tail",
    type=click.Choice(TAILS),
    default=TAILS[0],
    show_default=True,
    help="Where to close a ledger if its last entries may not have been acknowledged: at the last entry that a client "
    "could read; at the last that can have been acknowledged, where A is known; or leave it open where that is safe.",
)
@lost_option
@approval_option
@click.option(
    "--raise-past",
    type=click.IntRange(0),
    metavar="ID",
    help="Raise id generators past ids that are far above all others, up to this id.",
)
@click.option(
    "--read-payload",
    is_flag=True,
    help="Read the headers (producer, number, time) of the first and last message of ledgers that no topic names, and "
    "of each topic's last ledger, to find their topics. The plan keeps only how these compare.",
)
@master_option
@executor_option
@click.option("--out", type=PLACE, required=True, help="A new folder for the plan; it will hold passwords.")
@output_options
def recover(
    inventories: tuple[str, ...],
    disks: dict[str, list[Path]],
    uri: str | None,
    layout: str | None,
    snapshots: tuple[str, ...],
    moment: str | None,
    subtrees: tuple[str, ...],
    passwords: Path | None,
    expect_bookies: Path | tuple[str, ...] | None,
    default_quorum: tuple[int, int, int] | None,
    quorums: Path | None,
    references: tuple[str, ...],
    aliases: Path | None,
    tombstones: tuple[str, ...],
    tail: str,
    lost: tuple[str, ...],
    raise_past: int | None,
    master: str | None,
    python: Path | None,
    out: DatasetPlace,
    *,
    pulsar: bool,
    read_payload: bool,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Turn inventories into a plan that brings lost ledger metadata back. Writes nothing but the plan.

    The store (--metadata) and what it held earlier (--snapshot) are compared with what bookies show, ledger by ledger;
    without an inventory they are compared with each other, and records that a store lacks which has none are proposed.
    """
    output, approvals = make_output(shared), take_approvals(shared)
    if not inventories and not disks and not snapshots:
        raise click.UsageError("give --inventory or --disk; or --snapshot, to take only what it had")
    if (subtrees or pulsar) and not snapshots:
        raise click.UsageError("--subtree and --pulsar need --snapshot: bookies hold nothing of upper layers' nodes")
    if read_payload and not (disks and pulsar):
        raise click.UsageError("--read-payload needs --disk and --pulsar: inventories have no payload of entries")
    if layout is not None and not is_typed("uri"):
        uri = None
    if (uri is None) == (layout is None):
        raise click.UsageError("give --metadata, or --layout for a plan that is made without the store")
    # Loading what is needed takes a second: nobody should look at an empty line that long.
    with output.progress("looking at what was given", "inventories"):
        from reconcile.jobs import recover as job
        from reconcile.plan.actions import Passwords
        from recovery.codecs.store import Layout
        from recovery.infer.lost_disks import LostDisk
        from recovery.infer.search import Tail

    request = job.RecoverRequest(
        out=out,
        inventories=inventories,
        disks=disks,
        uri=uri,
        layout=None if layout is None else Layout(layout),
        snapshots=add_moment(snapshots, moment),
        passwords=Passwords.from_candidates(read_passwords(passwords)),
        expected=read_names(expect_bookies) if expect_bookies else None,
        default_quorum=default_quorum,
        quorums=quorums,
        references=references,
        tombstones=tombstones,
        tail=Tail(tail),
        lost=tuple(map(LostDisk.parse, lost)),
        raise_past=raise_past,
        master=master,
        python=python,
        aliases=read_aliases(aliases),
        subtrees=read_choice(subtrees, pulsar=pulsar),
        reads_payload=read_payload,
        settings=effective_settings(),
        approvals=approvals,
    )
    tell_if_whole(out, "plan")
    sys.exit(output.show(make_result(job.recover(request, make_context(output)))))


def make_result(recovered: "Recovered") -> Result:
    """Return what is shown of a plan that was just made."""
    from reconcile.cli.wording.plans import count_candidates, describe_reuse, describe_subtrees
    from reconcile.plan.views.deletions import group_by_session
    from reconcile.report.plan_verdict import describe_plan

    manifest, out = recovered.manifest, to_place(recovered.plan.path)
    counts = manifest.counts
    deletions = group_by_session(recovered.plan)
    starts = manifest.decide_starts()
    following = quote_command("bkmeta", "plan", "show", out) if counts.add_up else "do not apply it, report it"
    facts = {
        name: manifest.to_json()[name] for name in ("reasons", "doubts", "prior", "sides", "found", "mass_deletion")
    }
    return Result(
        "recover",
        describe_plan(manifest),
        _choose_exit(manifest),
        counts=counts.to_json(),
        coverage=manifest.coverage.to_json(),
        details=[
            *_describe_plan(recovered),
            *_describe_coverage(manifest.coverage),
            *_describe_starts(starts, out),
            *_describe_findings(recovered.plan, manifest, deletions),
            *describe_reuse(str(out), counts.ids_reused, counts.reuse_locks),
            *_describe_ids(counts),
            *describe_subtrees(manifest.subtrees),
            *count_candidates(manifest.candidates),
            *_describe_references(manifest.references, out),
        ],
        following=following,
        facts={
            "plan": str(out),
            "hash": manifest.hash,
            **facts,
            "references": manifest.to_json()["references"],
            "subtrees": manifest.to_json()["subtrees"],
            "candidates": dict(manifest.candidates),
            "bookies": [start.to_json() for start in starts],
            "deletions": [session.to_json() for session in deletions],
        },
    )


def _choose_exit(manifest: "PlanManifest") -> Exit:
    counts, coverage = manifest.counts, manifest.coverage
    if not counts.add_up:
        return Exit.FAILED
    unsettled = counts.guarded or counts.held or counts.waiting or counts.held_in_store or counts.guarded_in_store
    differing = any(subtree.differing for subtree in manifest.subtrees)
    if unsettled or counts.critical or counts.deleted or differing:
        return Exit.FOUND
    return Exit.UNDECIDABLE if coverage.not_scanned or not coverage.scanned else Exit.DONE


def _describe_plan(recovered: "Recovered") -> Iterator[str]:
    from recovery.dataset import REPORT

    manifest = recovered.manifest
    counts = manifest.counts
    yield f"ledgers on {count_noun(len(manifest.coverage.scanned), 'bookie')}: {counts.ledgers}"
    yield f"of these in the store already: {counts.in_store_already}"
    yield f"the plan: {count_noun(counts.writes, 'write')}, hash {manifest.hash}"
    yield f"to write it takes {time_in_words(estimate_s(EstimatedStep.APPLY, counts.writes))}"
    yield f"the report: {to_place(recovered.plan.path) / REPORT}"
    if counts.guarded_by_names:
        yield (
            f"{count_noun(counts.guarded_by_names, 'ledger')} guarded by names alone, without a lock: replication must "
            "stay disabled until settled, or copies go when a bookie returns, with last entries that only it has"
        )
    if recovered.absent_root is not None:
        yield (
            f"the store has no {recovered.absent_root}: apply will make it. Is it the root that bk_server.conf names?"
        )


def _describe_coverage(coverage: "Coverage") -> Iterator[str]:
    if coverage.not_scanned:
        yield "collect those bookies and recover again; until then, ledgers of which they may have more stay guarded"
    if coverage.lost:
        yield f"stated to be gone for good, so nothing is guarded because of them: {list_names(coverage.lost)}"
    if coverage.not_named:
        yield f"collected, but not expected: {list_names(coverage.not_named)}. Is the list of bookies right?"
    if coverage.scanned and not coverage.members_known_from:
        yield "name every bookie of the cluster in a file, one id a line, and run again: --expect-bookies FILE"
    if coverage.cluster_not_named:
        yield f"no instance id, so their cluster is not known: {list_names(coverage.cluster_not_named)}"
    if coverage.not_complete:
        yield (
            f"disks not read completely: {list_names(coverage.not_complete)}. A ledger that is only in their logs "
            f"may not have been deleted: its index may be in the part that was not read"
        )


def _describe_starts(starts: "Sequence[BookieStart]", out: DatasetPlace) -> Iterator[str]:
    refused = [start.bookie for start in starts if not start.may_start]
    if refused:
        command = quote_command("bkmeta", "plan", "show", out)
        yield (
            f"{len(refused)} of {count_noun(len(starts), 'bookie')} must not start when the plan is written, why: "
            f"{command}: {list_names(refused)}"
        )


def _describe_findings(
    plan: "Dataset", manifest: "PlanManifest", deletions: "Sequence[SessionDeletions]"
) -> Iterator[str]:
    import pyarrow.compute as pc

    from reconcile.cli.wording.plans import deletion_lines
    from reconcile.findings.categories import Category
    from reconcile.report.plan_verdict import describe_shares
    from reconcile.rules.sides import SHORT, Relation

    counts, out = manifest.counts, plan.path
    yield describe_shares(counts)
    for word, reasons in (("guarded", manifest.doubts), ("held", manifest.reasons)):
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
            yield f"{word}: {count}, {describe_reason(reason)} ({reason})"
    if counts.disagreements:
        places = f"{count_noun(counts.disagreements, 'place')}, {counts.critical} of them critical"
        yield f"the store and the bookies disagree in {places}: {out}/findings"
    listed = ", ".join(f"{name} {count}" for name, count in sorted(manifest.found.items()) if name not in _SAID)
    if listed:
        yield f"findings: {listed}: {out}/findings, bkmeta explain LEDGER"
    if manifest.found.get(Category.ALIAS_UNRESOLVED):
        renamed = pc.field("category") == str(Category.ALIAS_UNRESOLVED)
        for batch in plan.batches("findings"):
            for row in batch.filter(renamed).select(["evidence", "suggested"]).to_pylist():
                yield f"RENAMED? {row['evidence'][0]['value']}: {row['suggested']} (--aliases FILE)"
    if manifest.mass_deletion:
        yield "so many ledgers were deleted that the plan holds them: decide which of these deletes were meant"
    yield from deletion_lines(plan, deletions)
    if manifest.mass_let_go:
        yield (
            "the owners' records report so many ledgers as deleted that the plan holds them: if the owners' records "
            "were lost, too, give earlier ones as --references"
        )
    sides = ", ".join(f"{count} {SHORT[Relation(name)]}" for name, count in sorted(manifest.sides.items()))
    yield f"compared: {count_noun(counts.looked_at, 'ledger')}: {sides}"
    if counts.held_in_store:
        yield f"held by records of an earlier plan, until they are resolved: {counts.held_in_store}"


def _describe_ids(counts: "PlanCounts") -> Iterator[str]:
    from reconcile.rules.used_ids import RAISE_LIMIT

    if counts.ids_not_raised_past:
        yield (
            f"{counts.ids_not_raised_past} ledgers have ids above {RAISE_LIMIT:,}, and the id generator is not "
            "raised past them (it takes hours): BookKeeper skips an id that has a record, so none is given out twice"
        )
    if counts.ids_far_above:
        far = counts.ids_far_above
        yield (
            f"{count_noun(far, 'id')} on bookies {'stands' if far == 1 else 'stand'} far above all others, and the id "
            f"generator is not raised past {'it' if far == 1 else 'them'}: perhaps a wrong bit made "
            f"{'it' if far == 1 else 'them'}. Look at the finding ID_FAR_ABOVE; if the ledger is real: --raise-past ID"
        )
    if counts.counters_not_raised_past:
        yield (
            f"an id generator was above {RAISE_LIMIT:,} and is not raised that far (it takes hours): ids of ledgers "
            "that were deleted since can be given out again"
        )
    if counts.in_store_not_on_bookies:
        yield f"in the store, on no bookie that was read: {counts.in_store_not_on_bookies}"
    if counts.newer_than_inventories:
        yield (
            f"records that changed after their bookies were collected: {counts.newer_than_inventories}; entries that "
            f"these bookies lack are not judged: to judge them, collect the bookies again"
        )


def _describe_references(references: "ReferenceCounts | None", out: DatasetPlace) -> Iterator[str]:
    if references is None:
        return
    yield (
        f"references name {references.referenced} ledgers that are there, and {references.referenced_not_found} that "
        f"are not; {references.unreferenced} ledgers on bookies are in no reference"
    )
    if references.some_unreferenced:
        ledgers = [
            f"{ledger.ledger} (near {', '.join(ledger.neighbours) or 'none'})"
            for ledger in references.some_unreferenced[:_FEW]
        ]
        yield f"not referenced, owner not known: {list_names(ledgers)}; all: {out}/sides"
    unread = references.unreadable + references.gaps
    if unread:
        yield f"{unread} records of references were not read: {out}/findings"
