"""`apply`: a plan into the store that it is for."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.access import EnvironmentAccess
from reconcile.cli.command import Command, Exit
from reconcile.cli.options import (
    FOLDER,
    make_context,
    make_output,
    now,
    output_options,
    quoted,
    reason_option,
)
from reconcile.cli.output import Result
from reconcile.errors import GuardRefusedError, PlanError
from reconcile.estimates import Step
from reconcile.jobs.context import add_remedy, connect, throttle
from reconcile.printable import printable
from reconcile.words import counted, released_holds

if TYPE_CHECKING:
    from reconcile.write.apply import Applied, Tally
    from recovery.dataset import Dataset

from reconcile.cli.wording.lists import list_names

_SHOWN: Final = 10


_TYPED: Final = 8


_FROM_SNAPSHOT: Final = "from-snapshot"


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
    from reconcile.cli.wording.plan_store import writes_of
    from reconcile.plan.plan_reader import open_whole
    from reconcile.stores import demand_same_keys, demand_store_uri, list_principals
    from reconcile.write import apply as engine
    from reconcile.write import guards

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
    stopped = add_remedy(f"what was written is recorded in {folder}, go on: {again} --resume")
    with stopped, connect(uri, make_context(output), writable=True) as opened:
        wanted = dataset.manifest["binding"]["root"]
        if wanted and wanted != opened.root:
            problem = f"the plan was made for the root {wanted}"
            raise GuardRefusedError(opened.uri, problem, "apply it there; to try it elsewhere: bkmeta rehearse")
        demand_same_keys(opened, str(dataset.manifest["binding"].get("layout") or ""), acl)
        if opened.layout_hint == "etcd" and not accept_unfrozen:
            guards.demand_stopped(str(bookie) for bookie, *_ in dataset.manifest["binding"].get("bookies", ()))
        withheld = "ledgers of the plan wait for a person" if dataset.manifest["binding"]["cookies_held_back"] else None
        options = engine.Options(
            plan_hash=seen.hash,
            acl=guards.choose_acl(opened.store, opened.root) if acl is None else _named_rights(acl),
            accept_unfrozen=accept_unfrozen,
            withhold_cookies=withheld,
            resume=resume,
            wave=wave,
            reason=reason,
            principals=list_principals(EnvironmentAccess(), opened),
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
                progress=throttle(told),
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
            click.echo(
                f"not looked at, and what only they hold will be deleted: {printable(list_names(unseen))}", err=True
            )
            accept_unseen = click.prompt("type how many bookies were not looked at to go on", type=int, err=True)
    if confirm is None:
        problem = "is not confirmed, and there is no terminal to ask on"
        raise GuardRefusedError(dataset.path, problem, f"review it, then add: --confirm {plan_hash}")
    if not plan_hash.startswith(confirm.lower()) or len(confirm) < _TYPED:
        raise GuardRefusedError(dataset.path, "has another hash than the one confirmed", "review this plan first")
    if len(unseen) != accept_unseen:
        raise GuardRefusedError(
            dataset.path,
            f"was made without {counted(len(unseen), 'bookie')} ({list_names(unseen)}): "
            "what only they hold would be deleted"
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
