"""`delete verify`: may these ledgers be deleted?"""

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.deletes import (
    SHOWN,
    ledger_arguments,
    list_lines,
    look_options,
    show_time,
    take_ledgers,
    take_looks,
    take_target,
    target_options,
    to_ms,
    write_list,
)
from reconcile.cli.options import (
    DURATION,
    FILE,
    csv_option,
    evidence_option,
    make_context,
    make_output,
    output_options,
    quote_command,
    references_option,
)
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.deletes.clusters import DeleteTarget
    from reconcile.jobs.deletes.verify import VerifiedDeletes


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "all are safe to delete",
        Exit.FAILED: "the store did not answer, or the journal's disk is full",
        Exit.USAGE: "ledgers, a URI, inventories, a key or files that cannot be used",
        Exit.FOUND: "some are unsafe: each has its reason",
        Exit.UNDECIDABLE: "some could not be decided: each has its reason",
        Exit.REFUSED: "bkmeta's own root is not ours, or this host's clock is not the store's",
        Exit.PARTLY: "stopped midway: run the same command again",
    },
    epilog="Example: bkmeta delete verify --metadata zk+hierarchical://zk1:2181/ledgers --due --wire "
    "--references refs.jsonl --certificate purge.json",
)
@ledger_arguments
@click.option(
    "--due", is_flag=True, help="All requested ledgers with a soak that is over or a certificate that has ended."
)
@target_options
@look_options
@references_option
@evidence_option
@click.option(
    "--min-age",
    type=DURATION,
    default="1d",
    show_default=True,
    help="Age that a ledger must have when references are listed, at least.",
)
@click.option(
    "--archived",
    type=click.Choice(["required", "ignored"]),
    default="ignored",
    show_default=True,
    help="Whether the backup application must have marked a ledger.",
)
@click.option(
    "--archive-sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --archived required: N archived copies are read back from the places that their marks name.",
)
@click.option("--freshness", type=DURATION, default="1d", show_default=True, help="Greatest age of an inventory.")
@click.option(
    "--stable-for",
    "times",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="Safe verifications in a row before a purge.",
)
@click.option("--certificate", type=FILE, help="File for the certificate of the ledgers that may be purged.")
@click.option("--sign-key", type=FILE, help="PEM of an Ed25519 private key that signs the certificate.")
@click.option(
    "--confirm",
    "confirmed",
    type=int,
    metavar="COUNT",
    help="Confirm this number of deletes although the breaker trips.",
)
@click.option(
    "--absent",
    type=int,
    metavar="COUNT",
    help="Confirm that this number of ledgers left the store since the last verification.",
)
@click.option(
    "--history",
    metavar="backup:PLACE",
    help="A backup of the store. Ledgers that it shows as deleted since the last verification do not count as a mass "
    "absence.",
)
@csv_option
@output_options
def verify(
    *,
    due: bool,
    references: tuple[str, ...],
    evidence: tuple[DatasetPlace, ...],
    min_age: timedelta,
    archived: str,
    archive_sample: int | None,
    freshness: timedelta,
    times: int,
    certificate: Path | None,
    sign_key: Path | None,
    confirmed: int | None,
    absent: int | None,
    history: str | None,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Say of each ledger whether it may be deleted: SAFE, UNSAFE or UNDECIDED, with the reasons. WRITES tombstones.

    The store and the references are listed twice, before and after the bookies are looked at. A first safe verification
    begins the soak, one after it makes the delete PURGEABLE; any other verdict leads back to REQUESTED.
    """
    from reconcile.deletes.verification.verdicts import Rules
    from reconcile.jobs.deletes import verify as job

    output = make_output(shared)
    target, ledgers, looks = take_target(shared), take_ledgers(shared, may_be_none=due), take_looks(shared)
    if due and ledgers:
        raise click.UsageError("--due names the ledgers: leave LEDGER and --from out")
    if not looks.are_asked:
        raise click.UsageError("say how bookies are read: --wire, or --inventory for each of them")
    if sign_key is not None and certificate is None:
        raise click.UsageError("--sign-key belongs to --certificate")
    rules = Rules(to_ms(min_age), to_ms(freshness), archived == "required", confirmed, absent)
    request = job.VerifyDeletesRequest(
        target=target,
        ledgers=ledgers,
        looks=looks,
        references=references,
        rules=rules,
        looks_needed=times,
        certificate=certificate,
        sign_key=sign_key,
        runs=evidence,
        archive_sample=archive_sample or 0,
        history=history,
    )
    sys.exit(output.show(_make_result(job.verify_deletes(request, make_context(output)), target, certificate)))


def _make_result(done: "VerifiedDeletes", target: "DeleteTarget", path: Path | None) -> Result:
    verdicts = done.verdicts
    code = Exit.FOUND if verdicts["UNSAFE"] else Exit.UNDECIDABLE if verdicts["UNDECIDED"] else Exit.DONE
    made = done.certificate
    bad = [item for item in done.ledgers if item.reasons]
    details = [f"{item.ledger}: {item.verdict}: {'; '.join(item.reasons)}" for item in bad[:SHOWN]]
    details += [f"and {len(bad) - SHOWN} more: --json names all"] if len(bad) > SHOWN else []
    ids, lines = write_list(target, "not-safe.txt", "the ledgers that are not safe", [item.ledger for item in bad])
    details += lines
    if done.absence is not None and any(one.startswith("MASS_ABSENCE") for item in bad for one in item.reasons):
        details.append(f"many ledgers went: --history backup:PLACE, or --absent {done.absence.gone} if that is right")
    if not done.marks_kept:
        details.append("BookKeeper keeps no marks for replication on etcd: none could be checked")
    if done.certified:
        details.append(
            f"{count_noun(done.certified, 'ledger')} left to a certificate that names them: to verify them again, "
            "name them"
        )
    details += list_lines(dict(sorted(done.ended_early.items())))
    if path is not None:
        details.append(
            "no certificate: no ledger may be purged yet"
            if made is None
            else f"certificate {path} of {count_noun(len(made.ledgers), 'ledger')}, "
            f"until {made.body['not_after']}: {made.hash}"
        )
    command = ["bkmeta", "delete"]
    following = quote_command(*command, "status", "--metadata", target.uri)
    if made is not None and path is not None:
        following = quote_command(*command, "purge", "--metadata", target.uri, "--certificate", path)
    return Result(
        "delete-verify",
        f"{verdicts['SAFE']} safe, {verdicts['UNSAFE']} unsafe, {verdicts['UNDECIDED']} undecided "
        f"of {count_noun(len(done.ledgers), 'ledger')}",
        code,
        counts={**verdicts, "ledgers": len(done.ledgers), "certified": done.certified},
        coverage={"marks_kept": done.marks_kept},
        details=details,
        following=following,
        facts={
            "verdicts": verdicts,
            "ledgers": [
                {
                    "ledger": str(item.ledger),
                    "verdict": item.verdict.value,
                    "reasons": list(item.reasons),
                    "state": None if item.state is None else item.state.value,
                }
                for item in done.ledgers
            ],
            "ids": None if ids is None else str(ids),
            "ended_early": {str(ledger): reason for ledger, reason in done.ended_early.items()},
            "certificate": None if made is None else str(path),
            "hash": None if made is None else made.hash,
            "breaker": {
                "asked": done.breaker.asked,
                "lately": done.breaker.lately,
                "limit": done.breaker.limit,
                "tripped": done.breaker.is_tripped,
            },
            "absence": None
            if done.absence is None
            else {
                "since": show_time(done.absence.since_ms),
                "listed": done.absence.listed,
                "gone": done.absence.gone,
                "explained": done.absence.explained,
                "limit": done.absence.limit,
                "mass": done.absence.is_mass,
            },
        },
        rows="ledgers",
        columns=("ledger", "verdict", "reasons", "state"),
    )
