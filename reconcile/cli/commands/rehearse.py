"""`rehearse`: a plan applied where it can do no harm, and read back."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.incident import is_typed
from reconcile.cli.option_groups.wire import take_wire, wire_options
from reconcile.cli.options import (
    PLACE,
    by_bookie,
    make_context,
    make_output,
    output_options,
    quote_command,
    read_aliases,
)
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.errors import InputError
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.changes.rehearse import Rehearsed
    from recovery.dataset import Dataset

from reconcile.cli.commands.verify import SAMPLE, parse_sample
from reconcile.cli.wording.verified import make_verify_result

_SHOWN: Final = 10


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "all was written and read back as planned; or the rehearsal is removed",
        Exit.FAILED: "the store did not answer, or the tool failed",
        Exit.USAGE: "a plan, a URI, folders or files that cannot be used",
        Exit.FOUND: "ledgers or holds are not as they should be",
        Exit.UNDECIDABLE: "some could not be checked: disks are missing, or bookies do not answer",
        Exit.REFUSED: "the root exists, and is not marked as a rehearsal of this plan",
        Exit.PARTLY: "stopped midway, or keys were left as they are: run it again",
    },
    # The root of a rehearsal is never that of the cluster.
    not_of_incident=frozenset({"--metadata"}),
    epilog="Example: bkmeta rehearse plan --metadata zk+hierarchical://zk1:2181/bkmeta-rehearsal/ledgers "
    "--disk bk1:3181=/mnt/bk1",
)
@click.argument("plan", type=PLACE)
@click.option("--metadata", "uri", required=True, metavar="URI", help="A root that is absent, or an earlier rehearsal.")
@click.option("--disk", "disks", multiple=True, callback=by_bookie, metavar="ID=DIR", help="A bookie's folder.")
@click.option("--wire", is_flag=True, help="Ask the running bookies instead of reading disks.")
@click.option(
    "--bookies-from",
    metavar="URI",
    help="With --wire: where the bookies are registered. [default: the plan's own root, in the store of --metadata]",
)
@wire_options
@click.option(
    "--sample",
    callback=parse_sample,
    default=SAMPLE,
    show_default=True,
    metavar="N|all",
    help="Ledgers read back from disks or bookies, or all.",
)
@click.option("--remove", "away", is_flag=True, help="Remove the rehearsal of URI instead; only what is marked as one.")
@output_options
def rehearse(
    plan: DatasetPlace,
    uri: str,
    disks: dict[str, list[Path]],
    sample: int | None,
    *,
    wire: bool,
    bookies_from: str | None,
    away: bool,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Apply PLAN where it can do no harm, and read back what was written. Writes to the root of URI and nowhere else.

    The root must be absent, and is marked before anything else is written in it; or be the marked root of an earlier
    rehearsal of the same plan, which is gone on with. It stays, to be looked at, until --remove.
    """
    from reconcile.jobs.changes import rehearse as job
    from recovery.dataset import open_dataset

    output = make_output(shared)
    aliases = read_aliases(shared["aliases"])
    wire_access = take_wire(shared, wire=wire, without=frozenset({"aliases"}))
    if (wire or away) and not is_typed("disks"):
        disks = {}
    if (wire and disks) or (bookies_from and not wire):
        raise click.UsageError("give either --wire, perhaps with --bookies-from, or --disk ID=DIR")
    dataset = open_dataset(plan, "plan")
    if away:
        if disks or wire:
            raise InputError("--disk, --wire", "have no meaning with --remove", "leave one of them out")
        removed = job.remove_rehearsal(uri, make_context(output))
        verdict = f"{count_noun(removed.keys, 'key')} removed: the rehearsal is gone"
        verdict = verdict if removed.keys else "there is no such root"
        sys.exit(output.show(Result("rehearse", verdict, 0, {"removed": removed.keys}, {"root": removed.root})))
    source = disks if wire_access is None else wire_access
    rehearsed = job.rehearse(
        job.RehearseRequest(
            plan=dataset, uri=uri, source=source, registry=bookies_from, sample=sample, aliases=aliases
        ),
        make_context(output),
    )
    sys.exit(output.show(_make_result(rehearsed, dataset, plan, uri)))


def _make_result(rehearsed: "Rehearsed", dataset: "Dataset", plan: DatasetPlace, uri: str) -> Result:
    from reconcile.cli.wording.plans import store_of

    applied = rehearsed.applied
    tallies = {f"{op} {kind}": asdict(tally) for (kind, op), tally in sorted(applied.tallies.items())}
    written = sum(tally.written + tally.there for tally in applied.tallies.values())
    planned = sum(tally.planned for tally in applied.tallies.values())
    verdict = f"{written} of {planned} writes are in {rehearsed.root}, {applied.checked} keys read back as written"
    if applied.changed_count:
        verdict = f"{applied.changed_count} keys do not hold what was written. {verdict}"
    details = [f"left as it is: {c.key} ({c.reason})" for c in applied.conflicts[:_SHOWN]]
    details += [f"not as written: {key}" for key in applied.changed[:_SHOWN]]
    facts: dict[str, object] = {"root": rehearsed.root, "made": rehearsed.made, "journal": str(applied.journal)}
    counts: dict[str, object] = {"writes": tallies}
    coverage: dict[str, object] = {"read_back": applied.checked, "changed": applied.changed_count}
    code = applied.exit_code
    if rehearsed.read is not None:
        read = make_verify_result("rehearse", rehearsed.read, plan)
        verdict = f"{verdict}; {read.verdict}"
        details += read.details
        counts, coverage = {**counts, **read.counts}, {**coverage, **read.coverage}
        facts = {**facts, **read.facts}
        code = code or read.exit_code
    else:
        details.append(
            "no entries were read: give the bookies' disks with --disk ID=DIR, or ask the bookies with --wire"
        )
    rehearsal = quote_command("bkmeta", "rehearse", plan, "--metadata", uri)
    details.append(f"look at it in the store; then remove it: {rehearsal} --remove")
    following = quote_command(
        "bkmeta", "apply", plan, "--metadata", store_of(dataset), "--confirm", rehearsed.plan_hash
    )
    return Result("rehearse", verdict, code, counts, coverage, details, following if not code else "", facts)
