"""`archive run`: closed ledgers copied from bookies into an archive, then marked."""

import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.incident import is_typed
from reconcile.cli.option_groups.deletes import take_target, target_options
from reconcile.cli.option_groups.ledger_files import read_ledger_file
from reconcile.cli.option_groups.wire import take_wire, wire_options
from reconcile.cli.options import (
    DURATION,
    FILE,
    PLACE,
    by_bookie,
    executor_option,
    make_context,
    make_output,
    names_options,
    output_options,
    parse_ledgers,
    quote_command,
    read_aliases,
)
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.archive.run import Archived

_SHOWN: Final = 10
_LEFT_OUT: Final = {
    "archived": "in the archive already",
    "open": "not closed",
    "young": "changed too lately",
    "unknown_age": "whose age is not known",
    "other_topics": "of other topics, or of none",
    "not_in_store": "that were named and are not in the store",
}
_PROBLEMS: Final = {
    "damaged": "damaged",
    "absent": "not there",
    "unanswered": "not answered for",
    "unproven": "with a digest that nothing proves",
}

_REASONS: Final = {"unanswered": "bookies did not answer for it", "absent": "no bookie has it"}


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "every chosen ledger is in the archive, and marked",
        Exit.FAILED: "the store did not answer, the disk of --to or of the journal is full, Spark or the tool failed",
        Exit.USAGE: "ledgers, a URI, a place, folders or files that cannot be used; no Java, no Spark",
        Exit.FOUND: "copies are damaged; or ledgers are not archived: no copy of an entry is good, their record cannot "
        "be read, or the archive has another ledger of that id, or has lost objects",
        Exit.UNDECIDABLE: "nothing of that, but ledgers are not archived: bookies did not answer; or the store was not "
        "listed whole",
        Exit.REFUSED: "the archive is of another cluster, or the node at the key of bkmeta's own root was not made "
        "by bkmeta",
        Exit.PARTLY: "stopped midway while marks were written: run the same command again",
    },
    epilog="Example: bkmeta archive run --metadata zk+hierarchical://zk1:2181/ledgers --wire --older-than 1h "
    "--to s3://backup/ledgers",
)
@target_options
@click.option("--wire", is_flag=True, help="Read from the running bookies, without fencing and without recovery.")
@click.option("--disk", "disks", multiple=True, callback=by_bookie, metavar="ID=DIR", help="A bookie's folder.")
@click.option(
    "--to", "place", type=PLACE, required=True, metavar="PLACE", help="The archive: a folder, s3://, gs://, hdfs://."
)
@click.option("--ledgers", multiple=True, metavar="LEDGER", help="Only these ledgers.")
@click.option("--from", "source", type=FILE, help="Only the ledgers of this file, one a line.")
@names_options
@click.option(
    "--older-than", type=DURATION, metavar="1h", help="Only ledgers whose record has not changed for so long."
)
@click.option(
    "--topics",
    metavar="GLOB",
    help="Only ledgers with messages of these topics of Pulsar: persistent://tenant/namespace/topic, * and ?.",
)
@click.option(
    "--max-mb-s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="At most N MB are read in a second, of all bookies together.",
)
@click.option("--master", help="Spark's master. [default: that of Spark's settings, else local[*]]")
@executor_option
@wire_options
@output_options
def run(
    *,
    wire: bool,
    disks: dict[str, list[Path]],
    place: DatasetPlace,
    ledgers: tuple[str, ...],
    source: Path | None,
    scope: str | None,
    qualified: tuple[str, ...],
    older_than: timedelta | None,
    topics: str | None,
    max_mb_s: float | None,
    master: str | None,
    python: Path | None,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Copy closed ledgers into an archive, each once, and mark them. WRITES marks beside the ledgers root.

    Of each entry the first copy is taken whose digest agrees; copies that are damaged are named. Nothing is written to
    bookies. A run that was killed is run again: it goes on.
    """
    from reconcile.jobs.archive.run import RunRequest, archive

    output = make_output(shared)
    aliases = read_aliases(shared["aliases"])
    asked = take_wire(shared, wire=wire, without=frozenset({"aliases"}))
    if wire and not is_typed("disks"):
        disks = {}
    if wire == bool(disks):
        raise click.UsageError("give either --wire, or the bookies' folders with --disk ID=DIR")
    named = parse_ledgers(ledgers, scope, qualified, hint="--ledgers")
    if source is not None:
        named = tuple(dict.fromkeys([*named, *read_ledger_file(source, scope)]))
        if not named:
            raise click.UsageError(f"{source} names no ledgers")
    target = take_target(shared)
    request = RunRequest(
        target=target,
        place=place,
        source=disks if asked is None else asked,
        master=master,
        python=python,
        aliases=aliases,
        ledgers=named,
        older_than=older_than,
        topics=topics,
        max_mb_s=max_mb_s,
    )
    done = archive(request, make_context(output))
    sys.exit(output.show(_make_result(done, place)))


def _make_result(done: "Archived", place: DatasetPlace) -> Result:
    counts = {name: done.counts.get(name, 0) for name in (*_COUNTS, *_LEFT_OUT)}
    not_copied = {
        name.removeprefix("not_copied_"): count for name, count in done.counts.items() if "not_copied" in name
    }
    unanswered = not_copied.get("unanswered", 0)
    bad = sum(not_copied.values()) - unanswered
    damaged = sum(problems.get("damaged", 0) for problems in done.unused.values())
    verdict = (
        f"{count_noun(counts['copied'], 'ledger')} copied to {place}, {count_noun(counts['marked'], 'ledger')} marked"
    )
    code = Exit.DONE
    if done.gaps or unanswered:
        code, why = Exit.UNDECIDABLE, f"bookies did not answer for {count_noun(unanswered, 'ledger')}"
        verdict = f"{why if unanswered else 'the store was not listed whole'}: {verdict}"
    if bad or damaged or counts["unreadable"] or counts["other_history"] or counts["lacking"]:
        code = Exit.FOUND
        findings = [
            *([f"{count_noun(damaged, 'copy', 'copies')} of entries damaged"] if damaged else []),
            *([f"no good copy of some entry of {count_noun(bad, 'ledger')}"] if bad else []),
            *([f"{count_noun(counts['unreadable'], 'record')} that cannot be read"] if counts["unreadable"] else []),
            *([f"{count_noun(counts['other_history'], 'ledger')} of another history"] if done.others else []),
            *([f"objects of {count_noun(counts['lacking'], 'ledger')} gone"] if counts["lacking"] else []),
        ]
        verdict = f"{', '.join(findings)}: {verdict}"
    is_worth_again = code is not Exit.DONE and bool(unanswered or bad)
    following = quote_command("bkmeta", "archive", "verify", "--from", place)
    return Result(
        "archive-run",
        verdict,
        code,
        counts={"ledgers": done.ledgers, **counts, "not_copied": bad + unanswered, "damaged_copies": damaged},
        coverage={"gaps": list(done.gaps)},
        details=[*_describe(done, counts), *(["run it again when that is repaired"] if is_worth_again else [])],
        following=following,
        facts={
            "to": str(place),
            "run": done.run,
            "not_copied": list(done.failed),
            "damaged": list(done.damaged),
            "bookies": {bookie: dict(problems) for bookie, problems in done.unused.items()},
            "other_history": list(done.others),
            "lacking": list(done.lacking),
        },
    )


_COUNTS: Final = (
    "taken", "copied", "entries", "bytes", "marked", "marked_elsewhere", "unmarked", "unreadable", "other_history",
    "lacking",
)  # fmt: skip


def _describe(done: "Archived", counts: Mapping[str, int]) -> Iterator[str]:
    left_out = [f"{counts[name]} {words}" for name, words in _LEFT_OUT.items() if counts[name]]
    if left_out:
        yield f"ledgers that were not taken: {', '.join(left_out)}"
    if counts["marked_elsewhere"]:
        kept = f"{count_noun(counts['marked_elsewhere'], 'ledger')} keep the mark of another place"
        yield f"{kept}: if the copy there is lost, remove the mark (bkmeta archive unmark), and run this again"
    for bookie, problems in list(done.unused.items())[:_SHOWN]:
        words = ", ".join(f"{problems[name]} {text}" for name, text in _PROBLEMS.items() if problems.get(name))
        yield f"{bookie}, copies that were not taken: {words}"
    for row in done.damaged[:_SHOWN]:
        entries = f"entry {row['first']}" if row["first"] == row["last"] else f"entries {row['first']} to {row['last']}"
        yield f"ledger {row['ledger']}: {row['entries']} damaged on {row['bookie']} ({entries})"
    for row in done.failed[:_SHOWN]:
        words = _REASONS.get(row["problem"], "no copy has a digest that agrees")
        yield f"ledger {row['ledger']} is not archived: entry {row['entry']}, {words}"
    for ledger in done.others[:_SHOWN]:
        yield f"ledger {ledger}: the archive has another ledger of this id, and keeps it: archive it into another place"
    for ledger in done.lacking[:_SHOWN]:
        yield f"ledger {ledger}: objects of it are gone: put them back, or archive it into another place"
    if counts["unmarked"]:
        yield f"marks removed of {count_noun(counts['unmarked'], 'ledger')} that the archive does not have"
    if done.removed:
        yield f"{count_noun(done.removed, 'object')} that an earlier run had left unfinished removed"
