"""`check-impact`: may these bookies be taken away?"""

import getpass
import sys
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.check.impact.names import DomainLevel, ImpactTarget
from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.ledger_files import read_ledger_file
from reconcile.cli.options import (
    DURATION,
    FILE,
    FOLDER,
    PLACE,
    aliases_option,
    evidence_option,
    inventory_options,
    make_context,
    make_output,
    master_option,
    names_options,
    now,
    output_options,
    parse_ledgers,
    parse_quorum,
    quote_command,
    read_aliases,
    reason_option,
    references_option,
    require_bookie_ids,
)
from reconcile.cli.output import Result
from reconcile.cli.wording.impacts import (
    describe_details,
    describe_verdict,
    list_not_applicable,
    make_evidence_json,
    make_set_json,
)
from reconcile.operator_files import read_operator_text
from recovery.errors import InputError
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.check.impact.answer import ImpactAnswer

_LEVELS: Final = [str(level) for level in DomainLevel]
_MARGINS: Final = [str(DomainLevel.BOOKIE), str(DomainLevel.RACK)]
_CODES: Final = {"SAFE": Exit.DONE, "UNSAFE": Exit.FOUND, "UNDECIDED": Exit.UNDECIDABLE}


def _split(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Read ID,ID,… of each time that an option is given."""
    return tuple(tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip())) for value in values)


@click.command(
    name="check-impact",
    cls=Command,
    # Inventories of an incident are of bookies that were stopped; here they are what is believed instead of records.
    not_of_incident=frozenset({"--inventory-dir"}),
    exits={
        Exit.DONE: "SAFE: no client loses anything",
        Exit.FAILED: "the store did not answer, or the disk of --out or --catalog is full",
        Exit.USAGE: "a bookie, a domain, a URI or a file that cannot be used",
        Exit.FOUND: "UNSAFE: the answer says what would be lost, ledger by ledger",
        Exit.UNDECIDABLE: "UNDECIDED: something that matters could not be checked",
    },
    epilog="Example: bkmeta check-impact --metadata zk+hierarchical://zk1:2181/ledgers --bookies bk1:3181,bk2:3181",
)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store; or files of one, or a capture.")
@click.option(
    "--bookies",
    "sets",
    multiple=True,
    callback=_split,
    metavar="ID,...",
    help="Bookies to take away together. Repeat the option for another set.",
)
@click.option("--domain", "domains", multiple=True, metavar="NAME", help="All bookies of a rack, zone or region.")
@click.option("--host", "hosts", multiple=True, metavar="GLOB", help="All bookies on these hosts.")
@click.option(
    "--target",
    type=click.Choice([str(target) for target in ImpactTarget]),
    default=str(ImpactTarget.DOWN),
    show_default=True,
    help="What is done to them: read only, away for a while, or removed for good.",
)
@click.option("--topology", type=FILE, help="Locations of bookies: lines of `id-or-host /region/rack`.")
@click.option("--placement", type=FILE, help="A client's or a bookie's configuration: the placement policy.")
@click.option("--weights", type=FILE, help="Capacity of bookies: lines of `id weight`. [default: 1 each]")
@click.option("--default-quorum", callback=parse_quorum, metavar="E/W/A", help="What new ledgers need.")
@click.option("--ledgers", multiple=True, metavar="LEDGER", help="Only these ledgers.")
@click.option("--from", "source", type=FILE, help="Only the ledgers of this file, one a line.")
@names_options
@references_option
@inventory_options("What a bookie really holds, or a table of entries; it counts instead of what records promise.")
@evidence_option
@click.option("--catalog", "cache", type=FOLDER, help="Keeps captures of the store. [default: in ~/.cache/bkmeta]")
@click.option(
    "--max-age", type=DURATION, default="10m", show_default=True, help="Use a capture again if it is younger than this."
)
@click.option(
    "--max-unavailable-storage-capacity-pct",
    "most_unavailable",
    type=click.FloatRange(0, 100),
    default=25.0,
    show_default=True,
    metavar="N",
    help="Per cent of the weight that may be lost to writers.",
)
@click.option(
    "--margin",
    type=click.Choice(_MARGINS),
    help="Require that every entry stays readable if one more of these is lost.",
)
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="Look for the largest set of up to N bookies.")
@click.option("--drill", type=click.Choice(_LEVELS), help="Judge the loss of each of these alone.")
@click.option(
    "--stable-for",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Number of captures in a row that must be safe.",
)
@click.option(
    "--unrecoverable", multiple=True, callback=_split, metavar="ID,...", help="Declare that these lost their data."
)
@reason_option
@click.option(
    "--zookeeper", multiple=True, callback=_split, metavar="HOST,...", help="Hosts of the ZooKeeper ensemble's servers."
)
@aliases_option
@master_option
@click.option("--out", type=PLACE, help="A new folder: every segment that is hit, and a report page.")
@output_options
def check_impact(
    uri: str,
    sets: tuple[tuple[str, ...], ...],
    domains: tuple[str, ...],
    hosts: tuple[str, ...],
    target: str,
    topology: Path | None,
    placement: Path | None,
    weights: Path | None,
    default_quorum: tuple[int, int, int] | None,
    ledgers: tuple[str, ...],
    source: Path | None,
    scope: str | None,
    qualified: tuple[str, ...],
    references: tuple[str, ...],
    inventories: tuple[str, ...],
    evidence: tuple[DatasetPlace, ...],
    cache: Path | None,
    max_age: timedelta,
    most_unavailable: float,
    margin: str | None,
    most: int | None,
    drill: str | None,
    stable_for: int,
    unrecoverable: tuple[tuple[str, ...], ...],
    reason: str | None,
    zookeeper: tuple[tuple[str, ...], ...],
    aliases: Path | None,
    master: str | None,
    out: DatasetPlace | None,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """May these bookies be taken away? Every segment of every ledger is judged by its own E, W and A. Reads only.

    With nothing named: what is affected already. --bookies given several times are several sets, each judged alone.
    The store is captured once, and the capture used again while it is young: the answer says how old it is.
    """
    output = make_output(shared)
    if sum(map(bool, (sets, domains, hosts))) > 1:
        raise click.UsageError("give one of --bookies, --domain and --host")
    if any(not names for names in (*sets, *unrecoverable, *zookeeper)):
        raise click.UsageError("a list of bookies or hosts is empty")
    for names, option in ((sets, "--bookies"), (unrecoverable, "--unrecoverable")):
        require_bookie_ids([name for part in names for name in part], option)
    named = parse_ledgers(ledgers, scope, qualified, hint="--ledgers")
    if source is not None:
        named = tuple(dict.fromkeys([*named, *read_ledger_file(source, scope)]))
    with output.progress("loading what the check needs", "modules"):
        from reconcile.check.impact.answer import LossStatement
        from reconcile.check.impact.segments.columns import Shape
        from reconcile.check.placement_files import read_placement, read_topology
        from reconcile.jobs.collect.tables import with_tables
        from reconcile.jobs.impact.check import check_impact as run
        from reconcile.jobs.impact.question import ImpactRequest, Taken
        from reconcile.jobs.references import read_references
        from reconcile.operator_files import find_cache_folder
        from reconcile.rules.segments.placement import PlacementSettings
        from recovery.dataset import open_dataset

    context = make_context(output)
    declared = now().isoformat(timespec="seconds")
    request = ImpactRequest(
        uri=uri,
        cache=cache or find_cache_folder(),
        max_age=max_age,
        taken=Taken(sets, domains, hosts, ImpactTarget(target)),
        topology=None if topology is None else read_topology(topology),
        placement=PlacementSettings() if placement is None else read_placement(placement),
        weights={} if weights is None else read_weights(weights),
        default_quorum=None if default_quorum is None else Shape(*default_quorum),
        ledgers=named or None,
        references=read_references(references, context),
        evidence=evidence,
        most_unavailable=most_unavailable,
        margin=None if margin is None else DomainLevel(margin),
        most=most,
        drill=None if drill is None else DomainLevel(drill),
        stable_for=stable_for,
        unrecoverable=tuple(
            LossStatement(declared, getpass.getuser(), reason or "", name) for names in unrecoverable for name in names
        ),
        zookeeper=tuple(name for names in zookeeper for name in names),
        aliases=read_aliases(aliases),
        master=master,
        out=out,
    )
    with with_tables(inventories, now()) as folders:
        held = tuple(open_dataset(path, "inventory") for path in folders)
        answer = run(replace(request, inventories=held), context)
    if out is not None:
        _write_page(out, answer, target)
    sys.exit(output.show(make_result(answer, request.uri, target, out, asked=bool(zookeeper))))


def make_result(answer: "ImpactAnswer", uri: str, target: str, out: DatasetPlace | None, *, asked: bool) -> Result:
    """Return an answer as it is printed.

    Args:
        answer: it.
        uri: of the store.
        target: what is done to the bookies.
        out: of the dataset; None: none was written.
        asked: the ensemble's servers were named.
    """
    summary = describe_verdict(answer, target)
    not_applicable = list_not_applicable(answer, asked=asked)
    shown = answer.together or (answer.sets[0] if answer.sets else answer.now)
    return Result(
        "check-impact",
        summary,
        _CODES[str(answer.verdict)],
        counts={
            "ledgers": answer.ledgers,
            "segments": answer.segments,
            "unreadable": answer.unreadable,
            "bookies": dict(answer.states),
            "marked": answer.replication.marked,
        },
        coverage={
            "undecided": list(answer.undecided),
            "unreadable": list(answer.unreadable_sample),
            "without_location": list(answer.unplaced),
        },
        details=describe_details(answer, target, not_applicable),
        following=_choose_next(answer, uri),
        facts={
            "verdict": str(answer.verdict),
            "summary": summary,
            "target": target,
            "impacts": make_set_json(shown)["impacts"],
            "now": make_set_json(answer.now)["impacts"],
            "targets": [{"name": outcome.label, **make_set_json(outcome)} for outcome in answer.sets],
            "together": None if answer.together is None else make_set_json(answer.together),
            "drill": {outcome.label: make_set_json(outcome) for outcome in answer.drill},
            "max": None
            if answer.largest is None
            else {
                "asked": answer.largest.asked,
                "number": len(answer.largest.bookies),
                "bookies": list(answer.largest.bookies),
                "exact": answer.largest.is_exact,
            },
            "sample": [asdict(segment) for segment in answer.sample],
            "cache": {
                "path": answer.cache.path,
                "at": answer.cache.at.isoformat(),
                "age_s": round(answer.cache.age_s, 1),
                "txn": answer.cache.txn,
                "fresh": answer.cache.is_fresh,
                "alive": answer.cache.alive,
            },
            "replication": asdict(answer.replication),
            "evidence": None if answer.evidence is None else make_evidence_json(answer.evidence),
            "new_ledger_shapes": list(answer.shapes),
            "undated_ledgers": answer.undated,
            "stable": answer.stable,
            "declared_earlier": [asdict(statement) for statement in answer.declared],
            "not_applicable": not_applicable,
            "out": None if out is None else str(out),
        },
    )


def _choose_next(answer: "ImpactAnswer", uri: str) -> str:
    if answer.verdict == "UNDECIDED":
        return "fix what could not be judged, and ask again"
    if answer.verdict == "UNSAFE" and answer.sets:
        return "find what may be taken: " + quote_command(
            "bkmeta", "check-impact", "--metadata", uri, "--drill", "bookie", "--max", 100
        )
    if answer.verdict == "UNSAFE" and answer.drill:
        return "take one that is SAFE in the table; if none is, add a bookie or wait for re-replication; then ask again"
    if answer.verdict == "UNSAFE":
        return "wait for re-replication, or bring back what is down; then ask again"
    if answer.sets:
        return "take them away, and ask again before you take the next ones: bookies that are down then count as lost"
    return ""


def read_weights(path: Path) -> dict[str, float]:
    """Read a bookie's id and its weight a line; # begins a comment.

    Raises:
        InputError: the file cannot be read, or a line is not an id and a number.
    """
    form = "write a line for each bookie: its id, a space, a number that is not negative"
    lines = read_operator_text(path, form).splitlines()
    weights: dict[str, float] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            bookie, weight = words[0], float(*words[1:])
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}, line {number}", "is not an id and a number", form) from error
        if len(words) != 2 or not 0 <= weight < float("inf"):
            raise InputError(f"{path}, line {number}", "is not an id and a number", form)
        require_bookie_ids([bookie], f"{path}, line {number}")
        weights[bookie] = weight
    return weights


def _write_page(out: DatasetPlace, answer: "ImpactAnswer", target: str) -> None:
    from reconcile.report.impact_page import impact_page
    from reconcile.report.pages import write_page

    write_page(out, lambda: impact_page(answer, summary=describe_verdict(answer, target), target=target, made=now()))
