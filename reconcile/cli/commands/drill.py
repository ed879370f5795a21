"""`drill`: what would come back if the store were lost now."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import (
    FILE,
    PLACE,
    aliases_option,
    bookies_option,
    executor_option,
    inventory_options,
    make_context,
    make_output,
    master_option,
    output_options,
    quote_command,
    read_aliases,
    read_names,
    read_passwords,
)
from reconcile.cli.output import Result
from reconcile.cli.settings import effective_settings
from reconcile.cli.wording.drills import describe_drill, list_advice
from reconcile.words import count_noun
from recovery.place import DatasetPlace, is_remote

if TYPE_CHECKING:
    from reconcile.jobs.records.drill import Drilled


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "every ledger would come back: exactly, or readable",
        Exit.FAILED: "the store did not answer, the disk of --out is full, Spark failed; or the sums do not add up",
        Exit.USAGE: "a URI, inventories, files or folders that cannot be used; no Java, no Spark",
        Exit.FOUND: "ledgers would be held or lost: the answer says which, why, and what to do today",
        Exit.UNDECIDABLE: "no ledger would be held or lost, but some could not be judged: they changed after the "
        "bookies were collected",
    },
    epilog="Example: bkmeta drill --inventory inv/bk1 --inventory inv/bk2 "
    "--metadata zk+hierarchical://zk1:2181/ledgers --passwords pw.txt --expect-bookies bookies.txt --out drill",
)
@inventory_options("One bookie's inventory, or a table of entries.")
@click.option(
    "--metadata",
    "uri",
    required=True,
    metavar="URI",
    help="The store that the result is compared with; the reconstruction does not read it.",
)
@click.option(
    "--snapshot",
    "snapshots",
    multiple=True,
    metavar="PATH|URI",
    help="What would be left of the store: ZooKeeper's folder, one snapshot or log of it, etcd's .db, a tar of these, "
    "a capture's folder, or a URI.",
)
@click.option("--passwords", type=FILE, help="Candidate passwords, one a line; mode 0600.")
@bookies_option
@aliases_option
@master_option
@executor_option
@click.option("--out", type=PLACE, required=True, help="A new folder for the drill; it will hold passwords.")
@output_options
def drill(
    inventories: tuple[str, ...],
    uri: str,
    snapshots: tuple[str, ...],
    passwords: Path | None,
    expect_bookies: Path | tuple[str, ...] | None,
    aliases: Path | None,
    master: str | None,
    python: Path | None,
    out: DatasetPlace,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Try, on a good day, what would come back if the store were lost now. Writes nothing but --out.

    Metadata are reconstructed as recover does it, from inventories and from what would be left, without the store; then
    they are held against the store, ledger by ledger. Give what you would have then: nothing else is used.
    """
    from reconcile.jobs.records.drill import DrillRequest
    from reconcile.jobs.records.drill import drill as run_drill
    from reconcile.plan.actions import Passwords

    output = make_output(shared)
    request = DrillRequest(
        uri=uri,
        out=out,
        inventories=inventories,
        snapshots=snapshots,
        passwords=Passwords.from_candidates(read_passwords(passwords)),
        expected=read_names(expect_bookies) if expect_bookies else None,
        aliases=read_aliases(aliases),
        master=master,
        python=python,
        settings=effective_settings(),
    )
    sys.exit(output.show(_make_result(run_drill(request, make_context(output)), out)))


def _make_result(drilled: "Drilled", out: DatasetPlace) -> Result:
    from reconcile.jobs.records.drill import IDS

    ledgers = drilled.ledgers
    missing = ledgers["held"] + ledgers["lost"]
    code = (
        Exit.FAILED
        if not drilled.adds_up
        else Exit.FOUND
        if missing
        else Exit.UNDECIDABLE
        if ledgers["undecided"]
        else Exit.DONE
    )
    verdict = {
        Exit.FAILED: "INVALID: the sums of this drill do not add up; report it",
        Exit.FOUND: f"{count_noun(missing, 'ledger')} of {drilled.listed} would not come back readable",
        Exit.UNDECIDABLE: f"{count_noun(ledgers['undecided'], 'ledger')} could not be judged; all others come back",
        Exit.DONE: f"all {count_noun(drilled.listed, 'ledger')} would come back, {ledgers['exact']} of them exactly",
    }[code]
    advice = list_advice(drilled)
    taken = f"{'copied here, ' if is_remote(str(out)) else ''}export --from takes it"
    ids = {name: str(out / IDS / f"{name}.txt") for name in ("held", "lost", "undecided") if ledgers[name]}
    return Result(
        "drill",
        verdict,
        code,
        counts={
            "listed": drilled.listed,
            **ledgers,
            "entries": dict(drilled.entries),
            "entries_lost": drilled.entries_lost,
            "returned": dict(drilled.returned),
        },
        coverage={"bookies": list(drilled.bookies), "not_collected": list(drilled.not_collected)},
        details=[
            *describe_drill(drilled),
            *(f"the ledgers that are {name}: {file}; {taken}" for name, file in ids.items()),
            *(f"today: {sentence}" for sentence in advice),
        ],
        following=quote_command("bkmeta", "plan", "show", out / "plan") if missing else "",
        facts={
            "reasons": {name: dict(counted) for name, counted in drilled.reasons.items()},
            "guessed": dict(drilled.guessed),
            "differs": dict(drilled.differs),
            "today": advice,
            "ids": ids,
            "out": str(out),
        },
    )
