"""`archive verify`: an archive proven from its place alone."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import (
    PLACE,
    executor_option,
    make_context,
    make_output,
    names_options,
    output_options,
    parse_ledgers,
)
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.archive.verify import VerifiedArchive

_SHOWN: Final = 10


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "every ledger that was read is whole, and every digest agrees",
        Exit.USAGE: "ledgers or a place that cannot be used; with --master: no Java, no Spark",
        Exit.FOUND: "ledgers are damaged; named ledgers are not in the archive; or indexes are gone or damaged",
    },
    epilog="Example: bkmeta archive verify --from s3://backup/ledgers --sample 1000",
)
@click.argument("ledgers", metavar="[LEDGER]...", nargs=-1)
@names_options
@click.option("--from", "place", type=PLACE, required=True, metavar="PLACE", help="The archive.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="N ledgers, chosen at random. [default: all]")
@click.option("--master", metavar="MASTER", help="Spark's master, whose tasks read. [default: this process reads]")
@executor_option
@output_options
def verify(
    ledgers: tuple[str, ...],
    scope: str | None,
    qualified: tuple[str, ...],
    place: DatasetPlace,
    sample: int | None,
    master: str | None,
    python: Path | None,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Read an archive back: that no entry is missing, and that each digest and each hash agrees. Only reads.

    Nothing but the archive is needed: it has the record of each ledger.
    """
    import secrets

    from reconcile.jobs.archive.verify import VerifyArchiveRequest, verify_archive

    output = make_output(shared)
    named = parse_ledgers(ledgers, scope, qualified)
    if named and sample is not None:
        raise click.UsageError("name ledgers, or give --sample")
    seed = 0 if sample is None else secrets.randbits(62)
    request = VerifyArchiveRequest(place=place, ledgers=named, sample=sample, seed=seed, master=master, python=python)
    done = verify_archive(request, make_context(output))
    sys.exit(output.show(_make_result(done, place)))


def _make_result(done: "VerifiedArchive", place: DatasetPlace) -> Result:
    read = done.proven + done.damaged
    verdict = f"{done.proven} of {count_noun(read, 'ledger')} that were read are whole"
    code = Exit.DONE
    wrong = [
        *([f"{count_noun(done.damaged, 'ledger')} damaged"] if done.damaged else []),
        *([f"{count_noun(len(done.missing), 'ledger')} not in the archive"] if done.missing else []),
        *([f"{count_noun(len(done.broken), 'index', 'indexes')} gone or damaged"] if done.broken else []),
    ]
    if wrong:
        code, verdict = Exit.FOUND, f"{', '.join(wrong)}: {verdict}"
    return Result(
        "archive-verify",
        verdict,
        code,
        counts={
            name: getattr(done, name)
            for name in ("ledgers", "proven", "damaged", "twice", "entries", "bytes", "unproven")
        },
        coverage={"read": read, "of": done.ledgers},
        details=list(_describe(done)),
        facts={
            "from": str(place),
            "problems": dict(done.problems),
            "missing": list(done.missing),
            "broken": list(done.broken),
            "unlisted": list(done.unlisted),
            "unfinished": list(done.unfinished),
        },
    )


def _describe(done: "VerifiedArchive") -> Iterator[str]:
    yield f"the archive has {count_noun(done.ledgers, 'ledger')}; {done.entries} entries were read, {done.bytes} bytes"
    for ledger, problem in list(done.problems.items())[:_SHOWN]:
        yield f"{ledger}: {problem}"
    yield from (f"{ledger}: not in the archive" for ledger in done.missing[:_SHOWN])
    yield from (f"{file}: gone or damaged" for file in done.broken[:_SHOWN])
    if done.unproven:
        yield f"{count_noun(done.unproven, 'entry', 'entries')} without a digest that the record could check"
    if done.twice:
        yield f"{count_noun(done.twice, 'ledger')} copied more than once: the first copy counts"
    if done.unlisted:
        yield f"{count_noun(len(done.unlisted), 'run')} did not end: nothing shows whether an index of theirs is gone"
    if done.unfinished:
        yield f"{count_noun(len(done.unfinished), 'object')} that no index names: left by runs that were killed"
