"""`scrutinize`: do bookies and metadata agree, ledger by ledger."""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.wire import take_wire, wire_options
from reconcile.cli.options import (
    DURATION,
    FILE,
    FOLDER,
    PLACE,
    carry_options,
    executor_option,
    inventory_options,
    make_context,
    make_output,
    master_option,
    now,
    ops_option,
    output_options,
    quote_command,
    read_aliases,
    references_option,
)
from reconcile.cli.output import Result
from reconcile.cli.settings import effective_settings
from reconcile.words import count_noun, list_names
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.check.scrutiny.run_differences import GoneFinding
    from reconcile.jobs.scrutiny.request import Scrutinized

_SHARE: Final = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")
_MOST_SHARES: Final = 4096
_MB: Final = 1_000_000
_SHOWN: Final = 20
_TYPED: Final = click.core.ParameterSource.COMMANDLINE
_OF_STORES: Final = frozenset({"uri", "against", "out", "share", "fail_on", "as_json", "short", "progress"})
"""Parameters that mean something with --against."""


def _parse_share(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, int]:
    if value is None:
        return 1, 1
    match = _SHARE.fullmatch(value)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) <= _MOST_SHARES:
        raise click.BadParameter(f"write it as N/M with 1 ≤ N ≤ M ≤ {_MOST_SHARES}, for example 3/24")
    return int(match[1]), int(match[2])


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "nothing at or above --fail-on was found",
        Exit.FAILED: "the store did not answer, the disk of --out is full, Spark failed; or the sums do not add up",
        Exit.USAGE: "a URI, inventories, files or folders that cannot be used; no Java, no Spark",
        Exit.FOUND: "findings at or above --fail-on",
        Exit.UNDECIDABLE: "none, but fewer copies than --min-coverage could be judged; with --against: ledgers changed "
        "at every look",
    },
    epilog="Example: bkmeta scrutinize --metadata zk+hierarchical://zk1:2181/ledgers --topology racks.txt --out run-1",
)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store, named as in bk_server.conf.")
@click.option("--wire", is_flag=True, help="Ask running bookies. [default where no inventory is given]")
@inventory_options("One bookie's inventory, or a table of entries; for bookies that give no lists, or for all.")
@click.option(
    "--topology",
    type=FILE,
    help="Locations of bookies: lines of `id-or-host /region/rack`. [default: Pulsar's rack information in the store]",
)
@click.option("--placement", type=FILE, help="A client's or a bookie's configuration file: its placement policy.")
@click.option(
    "--grace", type=DURATION, default="24h", show_default=True, help="How long a mark or a recovery may last."
)
@click.option(
    "--recheck-after",
    type=DURATION,
    default="10m",
    show_default=True,
    help="Time until silent bookies are asked again.",
)
@click.option("--rechecks", type=click.IntRange(0, 10), default=1, show_default=True, help="How often they are.")
@click.option(
    "--fail-on",
    type=click.Choice(["critical", "warning"]),
    default="warning",
    show_default=True,
    help="Lowest severity that makes the exit code 3.",
)
@click.option(
    "--min-coverage",
    type=click.FloatRange(0, 100),
    default=99.0,
    show_default=True,
    metavar="PCT",
    help="Per cent of copies; if fewer could be judged, the exit code is 4.",
)
@click.option(
    "--buckets", "share", metavar="N/M", callback=_parse_share, help="Only the N-th of M shares of all ledgers."
)
@references_option
@click.option(
    "--since",
    "--baseline",
    "since",
    type=PLACE,
    metavar="RUN",
    help="The run before: says what is new, and what is resolved.",
)
@click.option("--suppress", type=FILE, help="TOML: findings that a person answers for, and until when.")
@click.option(
    "--against",
    metavar="URI",
    help="Another store of the same cluster: only the two stores are compared, no bookie is asked.",
)
@click.option(
    "--catalog",
    "captures",
    type=FOLDER,
    help="Folder that keeps captures of the store, as in check-impact. [default: none is kept]",
)
@click.option(
    "--max-age",
    type=DURATION,
    default="10m",
    show_default=True,
    help="Use a capture in --catalog if it is younger than this.",
)
@click.option(
    "--history",
    metavar="backup:PLACE",
    help="A backup of the store. It shows which records changed after an inventory without a transaction began. On "
    "etcd, which keeps no times, nothing else shows that. It also explains records that vanished after the run of "
    "--since.",
)
@click.option(
    "--sample-reads",
    is_flag=True,
    help="Read entries from bookies that give no lists (DbLedgerStorage): the first and the last of each position, and "
    "others in turn from run to run (--since). Nothing is fenced.",
)
@click.option(
    "--sample-runs",
    type=click.IntRange(1, 10_000),
    default=30,
    show_default=True,
    metavar="N",
    help="With --sample-reads: number of runs in which each entry is read once.",
)
@click.option(
    "--max-read-mb-s",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="N",
    help="With --sample-reads: one bookie reads at most N MB in a second, with what it reads ahead.",
)
@click.option("--metrics", type=FILE, help="Write the figures here, too, as Prometheus reads them.")
@master_option
@executor_option
@ops_option
@wire_options
@click.option("--out", type=PLACE, help="A new folder for the run; it will hold passwords. [default: nothing is kept]")
@output_options
def scrutinize(
    uri: str,
    wire: bool,  # noqa: FBT001 - click's option
    inventories: tuple[str, ...],
    topology: Path | None,
    placement: Path | None,
    grace: timedelta,
    recheck_after: timedelta,
    rechecks: int,
    fail_on: str,
    min_coverage: float,
    share: tuple[int, int],
    references: tuple[str, ...],
    since: DatasetPlace | None,
    suppress: Path | None,
    against: str | None,
    captures: Path | None,
    max_age: timedelta,
    history: str | None,
    sample_reads: bool,  # noqa: FBT001 - click's option
    sample_runs: int,
    max_read_mb_s: float,
    metrics: Path | None,
    master: str | None,
    python: Path | None,
    ops_s: float | None,
    out: DatasetPlace | None,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Look at every closed ledger: does each entry stand on the bookies that its record names? Reads only.

    Marked ledgers are passed over, unless the mark is older than --grace. What is found is looked at again, and only
    what stands twice is reported. Nothing is repaired, marked, fenced or recovered.

    A bookie of DbLedgerStorage does not answer what it holds: give its inventory, or --sample-reads.

    With --against every record is held against that of another store of the cluster, field by field, before or after a
    move of the metadata; what differs is read again.
    """
    if against is not None:
        if out is None:
            raise click.UsageError("--against needs --out: a new folder for what differs")
        sys.exit(_scrutinize_against(uri, against, out, share, fail_on, shared))
    from reconcile.check.placement_files import read_placement, read_topology
    from reconcile.check.scrutiny.judge import Demands
    from reconcile.check.scrutiny.lifecycle import read_suppressions
    from reconcile.jobs.scrutiny.request import SampleReads, ScrutinyRequest
    from reconcile.jobs.scrutiny.scrutinize import scrutinize as run_scrutiny
    from reconcile.rules.segments.placement import PlacementSettings

    output = make_output(shared)
    suppressions, expired = ((), ()) if suppress is None else read_suppressions(suppress, now().date())
    aliases = read_aliases(shared["aliases"])
    asked = take_wire(shared, wire=wire or not inventories, without=frozenset({"aliases"}))
    _require_reads(sample_reads=sample_reads, wire=asked is not None)
    demands = Demands(
        grace.total_seconds(),
        None if topology is None else read_topology(topology),
        PlacementSettings() if placement is None else read_placement(placement),
    )
    with _give_place(out) as place:
        request = ScrutinyRequest(
            uri=uri,
            out=place,
            inventories=inventories,
            wire=asked,
            demands=demands,
            share=share,
            fail_on=fail_on,
            min_coverage=min_coverage,
            recheck_after_s=recheck_after.total_seconds(),
            rechecks=rechecks,
            since=since,
            suppressions=suppressions,
            metrics=metrics,
            master=master,
            python=python,
            settings=effective_settings(),
            aliases=aliases,
            references=references,
            is_kept=out is not None,
            captures=captures,
            max_age=max_age,
            sample_reads=SampleReads(sample_runs, max_read_mb_s * _MB) if sample_reads else None,
            ops_s=ops_s,
            history=history,
        )
        scrutinized = run_scrutiny(request, make_context(output))
    result = _make_result(scrutinized, request.min_coverage, out)
    notes = [f"suppression is over: {suppression}" for suppression in expired]
    sys.exit(output.show(replace(result, details=[*result.details, *notes])))


def _require_reads(*, sample_reads: bool, wire: bool) -> None:
    """Refuse options of reads where no bookie is read from.

    Raises:
        UsageError: they were given all the same.
    """
    if sample_reads and not wire:
        raise click.UsageError("--sample-reads has no meaning without --wire")
    context = click.get_current_context()
    for name in ("sample_runs", "max_read_mb_s"):
        if not sample_reads and context.get_parameter_source(name) is _TYPED:
            raise click.UsageError(f"--{name.replace('_', '-')} has no meaning without --sample-reads")


@contextmanager
def _give_place(out: DatasetPlace | None) -> Iterator[DatasetPlace]:
    """Give the folder of the run; one that is gone afterwards where nobody names any."""
    if out is not None:
        yield out
        return
    with TemporaryDirectory(prefix="bkmeta-scrutiny-") as folder:
        yield Path(folder) / "run"


def _scrutinize_against(
    uri: str, against: str, out: DatasetPlace, share: tuple[int, int], fail_on: str, shared: dict[str, Any]
) -> int:
    """Compare two stores, and show it; return the exit code."""
    from reconcile.cli.wording.stores import make_result
    from reconcile.jobs.records.against import AgainstRequest, scrutinize_against

    context = click.get_current_context()
    typed = (name for name in context.params if context.get_parameter_source(name) is _TYPED)
    foreign = sorted({*typed} - _OF_STORES)
    if foreign:
        raise click.UsageError(f"--{foreign[0].replace('_', '-')} has no meaning with --against: no bookie is asked")
    output = make_output(shared)
    request = AgainstRequest(uri=uri, against=against, out=out, share=share, settings=effective_settings())
    return output.show(make_result(scrutinize_against(request, make_context(output)), fail_on, out))


def _make_result(scrutinized: "Scrutinized", min_coverage: float, out: DatasetPlace | None) -> Result:
    from reconcile.check.scrutiny.coverage import describe_not_judged
    from reconcile.findings.view import FindingView

    covered, lighter = scrutinized.covered_pct, scrutinized.passed_over
    left = describe_not_judged(scrutinized.coverage)
    code = (
        Exit.FAILED
        if not scrutinized.adds_up
        else Exit.FOUND
        if scrutinized.failing
        else Exit.DONE
        if scrutinized.is_covered(min_coverage)
        else Exit.UNDECIDABLE
    )
    verdict = {
        Exit.FAILED: "INVALID: the sums of this run do not add up; report it",
        Exit.FOUND: f"{count_noun(scrutinized.failing, 'finding')} to act on",
        Exit.UNDECIDABLE: f"nothing {'to act on' if lighter else 'found'}, "
        f"but only {covered:.1f} % of the copies could be judged; not judged: {left}",
        Exit.DONE: f"nothing to act on; {count_noun(lighter, 'finding')} suppressed or lighter than --fail-on"
        if lighter
        else "bookies and metadata agree"
        if not scrutinized.not_judged
        else f"bookies and metadata agree in {covered:.1f} % of the copies; not judged: {left}",
    }[code]
    skipped, undecided = sum(scrutinized.skipped.values()), sum(scrutinized.undecided.values())
    coverage = scrutinized.coverage
    details = [
        (
            f"{count_noun(scrutinized.listed, 'ledger')}: {scrutinized.clean} clean, {skipped} skipped, "
            f"{undecided} undecided, {scrutinized.with_findings} with findings; {scrutinized.rechecked} checked again"
        ),
        *(f"skipped: {count} {reason}" for reason, count in sorted(scrutinized.skipped.items())),
        *(f"undecided: {count} {reason}" for reason, count in sorted(scrutinized.undecided.items())),
        f"copies judged: {coverage['judged']} of {coverage['positions']} ({covered:.1f} %)",
        *(f"copies not judged: {count} {reason}" for reason, count in scrutinized.not_judged.items()),
        *_describe_marks(coverage["marks"]),
        f"bookies: {coverage['bookies']}, {coverage['inventories']} of them by inventory",
        (
            f"bookies asked: {coverage['asked']}; answered: {coverage['answered']}; "
            f"without lists: {coverage['without_lists']}; silent: {len(coverage['silent'])}"
        ),
        *_describe_samples(coverage.get("sampled")),
        *([f"the wire does not tell: {'; '.join(coverage['not_told'])}"] if coverage["not_told"] else []),
        *(
            []
            if coverage["marks_kept"]
            else ["BookKeeper has no marks and no auditor on etcd: none were checked, and no bookie's loss is repaired"]
        ),
        *(
            [
                (
                    f"no transaction dates the inventory of {list_names(coverage['undated'])}: collect with "
                    "--metadata URI, or name a backup of the store with --history"
                )
            ]
            if coverage["undated"]
            else []
        ),
        *(
            []
            if scrutinized.new is None
            else [
                (
                    f"since the run before: {scrutinized.new} new, {scrutinized.resolved} resolved, "
                    f"{scrutinized.not_looked_for} not looked for again"
                )
            ]
        ),
        *(f"not looked for again: {count}, {why}" for why, count in sorted(scrutinized.carried.items())),
        *([f"suppressed: {scrutinized.suppressed}"] if scrutinized.suppressed else []),
        *(finding.line for finding in _list_gone(scrutinized)),
        *(f"{category}: {count}" for category, count in scrutinized.found.items()),
        *(line for row in scrutinized.worst for line in FindingView.from_row(row).lines),
    ]
    following = ""
    if scrutinized.failing:
        where = (
            "with --out RUN all of them are kept"
            if out is None
            else f"all are in {out}/findings, the ids of each category's ledgers in {out}/ledgers"
        )
        sources = carry_options("--metadata", "--inventory", "--inventory-dir")
        following = f"{where}; of one ledger: " + quote_command("bkmeta", "explain", "LEDGER", *sources)
    elif coverage["without_lists"] and not coverage.get("sampled"):
        following = (
            "on each host of a bookie that gives no lists: bkmeta collect --bookie-conf bk_server.conf --out DIR; "
            "then scrutinize again with --wire --inventory DIR; without that: scrutinize with --sample-reads"
        )
    sums = {
        "looked_at": scrutinized.looked_at,
        "clean": scrutinized.clean,
        "skipped": dict(scrutinized.skipped),
        "undecided": dict(scrutinized.undecided),
        "rechecked": scrutinized.rechecked,
        "new": scrutinized.new,
        "resolved": scrutinized.resolved,
        "not_looked_for": scrutinized.not_looked_for,
        "carried": dict(scrutinized.carried),
    }
    return Result(
        "scrutinize",
        verdict,
        code,
        counts={
            "listed": scrutinized.listed,
            **sums,
            "with_findings": scrutinized.with_findings,
            "failing": scrutinized.failing,
            "suppressed": scrutinized.suppressed,
        },
        coverage={**coverage, "judged_pct": round(covered, 3)},
        details=details,
        following=following,
        facts={
            "found": dict(scrutinized.found),
            "by_severity": dict(scrutinized.by_severity),
            **sums,
            "gone": [finding.to_json() for finding in _list_gone(scrutinized)],
            "out": None if out is None else str(out),
        },
    )


def _list_gone(scrutinized: "Scrutinized") -> "tuple[GoneFinding, ...]":
    """Return the first findings that are gone and were more than notes; all are in the run's `gone.jsonl`."""
    return tuple(finding for finding in scrutinized.gone if finding.row["severity"] != "info")[:_SHOWN]


def _describe_marks(marks: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line on the marks of closed ledgers, if there are any, or were."""
    change = marks["change"]
    if not (marks["number"] or change):
        return
    oldest = "" if marks["oldest"] is None else f", the oldest since {marks['oldest']}"
    rate = "" if change is None else f"; {change:+} since the run before ({marks['per_day']:+} a day)"
    yield f"marked closed ledgers: {marks['number']}{oldest}{rate}"


def _describe_samples(sampled: Any) -> list[str]:  # noqa: ANN401 - of the coverage
    """Return what was read of bookies that give no lists, as lines."""
    if not sampled:
        return []
    said = sampled["held"] + sampled["lacking"]
    text = (
        f"entries read from bookies that give no lists: {said} of {sampled['copies']} copies, "
        f"in run {sampled['run']} of {sampled['runs']}; missing: {sampled['lacking']}"
    )
    lines = [text]
    if sampled["read_earlier"]:
        lines.append(
            f"copies that earlier runs read, and that count: {sampled['read_earlier']}, since {sampled['oldest_read']}"
        )
    if sampled["failed"]:
        lines.append(f"not known of {sampled['failed']} copies that were asked for; the first answer: {sampled['why']}")
    return lines
