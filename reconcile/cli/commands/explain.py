"""The command that says everything about one ledger."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.access import EnvironmentAccess
from reconcile.cli.command import Command, Exit
from reconcile.cli.commands.recover import LAYOUTS, TAILS
from reconcile.cli.options import (
    FILE,
    FOLDER,
    bookies_option,
    carry_options,
    inventory_options,
    make_context,
    make_output,
    output_options,
    parse_ledger,
    parse_quorum,
    quote_command,
    read_names,
    read_passwords,
    references_option,
    scope_option,
)
from reconcile.cli.output import Output, Result

if TYPE_CHECKING:
    from reconcile.compare.single_ledger import StoredLedger
    from reconcile.explain.field_evidence import Field
    from reconcile.explain.ledger import Explanation
    from reconcile.explain.ledger_copies import Copy
    from recovery.dataset import Dataset
    from recovery.model.ids import LedgerId

CODES: Final = {"settled": Exit.DONE, "open": Exit.FOUND, "undecided": Exit.UNDECIDABLE}
"""Exit code of each standing."""
_FILES: Final = ("zkfiles:", "etcdfile:")
_AS_RECOVER: Final = (
    "--inventory",
    "--inventory-dir",
    "--metadata",
    "--snapshot",
    "--passwords",
    "--expect-bookies",
    "--default-quorum",
    "--references",
    "--tail",
)
_NAMED: Final = 5
_WIDTH: Final = 16
_VALUE: Final = 18


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "it comes back, or is in the store and nothing disagrees",
        Exit.FAILED: "the store did not answer, or the tool failed",
        Exit.USAGE: "an id, a URI or datasets that cannot be used",
        Exit.FOUND: "it is held or guarded, something disagrees, or nothing knows it and all was looked at",
        Exit.UNDECIDABLE: "nothing knows it, and not everything was looked at",
    },
    epilog="Example: bkmeta explain 12345 --inventory inv/bk1 --inventory inv/bk2 --plan plan",
)
@click.argument("ledger", required=False)
@scope_option
@click.option("--ledger-qualified-name", "qualified", metavar="NAME", help="Instead of LEDGER: its 32 hex digits.")
@inventory_options("One bookie's inventory.")
@click.option("--metadata", "uri", metavar="URI", help="The store, or a capture of it: catalog:///DIR.")
@click.option("--snapshot", "snapshots", multiple=True, metavar="URI", help="What the store held earlier, as recover.")
@click.option("--plan", type=FOLDER, help="A plan; what it says of the ledger is explained, not made anew.")
@click.option("--passwords", type=FILE, help="Candidates, one a line; mode 0600.")
@bookies_option
@click.option("--default-quorum", callback=parse_quorum, metavar="E/W/A", help="Where nothing else decides.")
@references_option
@click.option("--tail", type=click.Choice(TAILS), default=TAILS[0], show_default=True, help="As recover.")
@click.option("--layout", type=click.Choice(LAYOUTS), help="Of the store to be repaired, where nothing else names it.")
@output_options
def explain(
    ledger: str | None,
    scope: str | None,
    qualified: str | None,
    inventories: tuple[str, ...],
    uri: str | None,
    snapshots: tuple[str, ...],
    plan: Path | None,
    passwords: Path | None,
    expect_bookies: Path | tuple[str, ...] | None,
    default_quorum: tuple[int, int, int] | None,
    references: tuple[str, ...],
    tail: str,
    layout: str | None,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Say what is known of one LEDGER: who holds what, what follows from it, what the store and a plan have.

    LEDGER is a number, scope:number, or a qualified name of 32 hex digits. Given what recover was given, it says what
    recover decides; with --plan, what that plan did. No Spark is needed, and nothing is written.
    """
    from reconcile.compare.knowledge import Knowledge
    from reconcile.explain.ledger import explain as run
    from reconcile.jobs.make_plan.request import open_inventories
    from reconcile.jobs.references import read_references
    from reconcile.plan.actions import Passwords
    from reconcile.plan.manifest import read_plan_manifest
    from recovery.codecs.store import Layout
    from recovery.dataset import open_dataset
    from recovery.infer.search import Tail

    output = make_output(shared)
    typed = ledger if ledger is not None else qualified
    if typed is None or (ledger is not None and qualified is not None):
        raise click.UsageError("name one ledger: LEDGER, or --ledger-qualified-name")
    named = parse_ledger(typed, scope)
    if not (inventories or uri or snapshots or plan):
        raise click.UsageError("give at least one of --inventory, --metadata, --snapshot, --plan")
    opened = open_inventories(inventories)
    with ExitStack() as stack:
        stored, named_layout = [], layout
        for name in [*([uri] if uri is not None else []), *snapshots]:
            one, of = _read_store(name, named, output, stack)
            stored.append(one)
            # The store that is repaired is the first, where there is one.
            named_layout = named_layout or of
        made = open_dataset(plan, "plan") if plan else None
        named_layout = named_layout or (read_plan_manifest(made).binding.layout if made else None)
        known = read_references(references, make_context(output))
        knowledge = Knowledge(
            passwords=Passwords.from_candidates(read_passwords(passwords)).values,
            expected=read_names(expect_bookies) if expect_bookies else None,
            default_quorum=default_quorum,
            tail=Tail(tail),
            layout=Layout(named_layout) if named_layout else None,
            references=None if known is None else known.rows,
        )
        stores = known.stores if known is not None else ()
        found = run(named, opened, stored, made, knowledge, has_store=uri is not None, references=stores)
    given = carry_options(*_AS_RECOVER)
    sys.exit(output.show(_result(found, given, uri, plan)))


def _read_store(uri: str, ledger: "LedgerId", output: Output, stack: ExitStack) -> "tuple[StoredLedger, str | None]":
    """Return what a store has of the ledger, and its layout.

    Catalogs are read where they are; copied files of stores are captured for as long as `stack` is open, as recover
    captures them. A live store is asked for this ledger only.
    """
    from reconcile.jobs.capture import capture_store
    from reconcile.stores import catalog_path, open_store
    from recovery.dataset import open_dataset

    path = catalog_path(uri)
    if path is None and not uri.startswith(_FILES):
        return _live(uri, ledger)
    if path is None:
        path = f"{stack.enter_context(TemporaryDirectory(prefix='bkmeta-explain-'))}/catalog"
        with open_store(uri, EnvironmentAccess()) as opened:
            capture_store(opened, Path(path), make_context(output))
    catalog = open_dataset(path, "catalog")
    layouts = catalog.read("sources", columns=["layout"])["layout"].to_pylist()
    return read_catalog(uri, catalog, ledger), layouts[0] if layouts else None


def _live(uri: str, ledger: "LedgerId") -> "tuple[StoredLedger, str | None]":
    """Read the ledger's record, its history where there is one, and who has a cookie, from a store."""
    from backends.protocols import ScannableStore
    from reconcile.check.guard_locks import select_guarded
    from reconcile.clusters import decode_named
    from reconcile.compare.single_ledger import StoredLedger, as_catalog_row, as_history_rows
    from reconcile.stores import open_store
    from recovery.codecs import store
    from recovery.errors import InputError
    from recovery.model import tables

    with open_store(uri, EnvironmentAccess()) as opened:
        where = store.places(opened.layout_hint)
        held = opened.store.get(opened.root + where.layout)
        if opened.layout_hint:
            layout = store.Layout(opened.layout_hint)
        elif held is not None:
            layout = store.layout_of(held.value)
        else:
            problem = "neither the URI nor the store names a layout"
            raise InputError(uri, problem, "name the cluster's layout, e.g. zk+hierarchical://")
        try:
            key = opened.root + store.ledger_key(layout, ledger)
        except ValueError as error:
            raise InputError(str(ledger), str(error), "name a ledger that the layout has a place for") from error
        record = opened.store.get(key)
        is_guarded = bool(select_guarded(opened.store, opened.root, [ledger]))
        named = opened.store.get(opened.root + where.instance_id)
        members = tuple(opened.store.children(opened.root + where.cookies) or ())
        history, txn, complete = tables.CATALOG_HISTORY.empty_table(), None, True
        if isinstance(opened.store, ScannableStore):
            point = opened.store.point()
            txn, complete = point.txn, not point.gaps
            history = as_history_rows(opened.store.history(key), key, ledger)
    row = tables.CATALOG_LEDGERS.empty_table()
    if record is not None:
        row = as_catalog_row(record, ledger)
    cluster = decode_named(None if named is None else named.value)
    stored = StoredLedger(
        uri, row, history, txn, members, complete=complete, instance_id=cluster, is_guarded=is_guarded
    )
    return stored, str(layout)


def read_catalog(uri: str, catalog: "Dataset", ledger: "LedgerId") -> "StoredLedger":
    """Read the ledger's record, its history, and who has a cookie, from a catalog."""
    import pyarrow.compute as pc

    from reconcile.clusters import of_catalog
    from reconcile.compare.single_ledger import StoredLedger, read_only_ledger
    from recovery.codecs.replication_lock import is_guard, ledger_of_lock

    nodes = catalog.read("nodes", columns=["path", "kind", "raw", "owner"])
    locks = nodes.filter(pc.equal(nodes["kind"], "lock")).to_pylist()
    cookies = nodes.filter(pc.equal(nodes["kind"], "cookie"))["path"].to_pylist()
    sources = catalog.read("sources", columns=["txn"])["txn"].to_pylist()
    return StoredLedger(
        uri,
        read_only_ledger(catalog, "ledgers", ledger),
        read_only_ledger(catalog, "history", ledger),
        sources[0] if sources else None,
        tuple(path.rsplit("/", 1)[-1] for path in cookies),
        complete=bool(catalog.manifest["coverage"].get("complete")),
        catalog=catalog,
        is_guarded=any(ledger_of_lock(n["path"]) == ledger and is_guard(n["raw"], n["owner"] or 0) for n in locks),
        instance_id=of_catalog(uri, catalog.read("sources"), nodes).instance_id,
    )


def _result(found: "Explanation", given: Sequence[str], uri: str | None, plan: Path | None) -> Result:
    return Result(
        "explain",
        found.verdict,
        CODES[found.standing],
        counts={
            "copies": len(found.copies),
            "entries_held": sum(copy.entries for copy in found.copies),
            "disagreements": len(found.disagreements),
            "actions": len(found.actions),
            "damage": len(found.damage),
        },
        coverage=found.coverage.to_json(),
        details=list(_details(found)),
        following=_next(found, given, uri, plan),
        facts={
            "ledger": str(found.ledger),
            "qualified_name": found.ledger.qualified_name,
            "standing": str(found.standing),
            "outcome": found.outcome,
            "reason": found.reason,
            "settled_by": found.settles,
            "reconstruction": {"from": found.origin, "fields": [asdict(one) for one in found.fields]},
            "alternatives": list(found.alternatives),
            "sides": list(found.sides),
            "timeline": list(found.timeline),
            "references": list(found.references),
            "copies": [asdict(copy) for copy in found.copies],
            "grid": list(found.grid),
            "stored": found.stored,
            "disagreements": list(found.disagreements),
            "planned": list(found.actions),
            "damage": list(found.damage),
        },
    )


def _details(found: "Explanation") -> Iterator[str]:
    if found.settles:
        yield f"what would settle it: {found.settles}"
    yield from _block("who holds what", [line for copy in found.copies for line in _copy(copy)])
    yield from _block(
        "entries by bookie (# all, - some, ! none of what it should have, + not asked for, . nothing)", found.grid
    )
    yield from _block(f"the record that follows ({found.origin})", [_field(one) for one in found.fields])
    yield from _block("other readings that fit", found.alternatives)
    yield from _block("upper layers", found.references)
    yield from _block("three sides", found.sides)
    yield from _block("timeline", found.timeline)
    yield from _block("the store's record", _pairs(found.stored or {}))
    yield from _block("disagreements", found.disagreements)
    yield from _block("the plan writes", found.actions)
    yield from _block("damage that names it", found.damage)
    yield from _block("looked at", list(_coverage(found.coverage.to_json())))


def _block(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _pairs(values: Mapping[str, str]) -> list[str]:
    return [f"{name:<{_WIDTH}} {value}" for name, value in values.items()]


def _field(one: "Field") -> str:
    # What is long is in the timeline, line by line.
    value = one.value if len(one.value) <= _VALUE else "see the timeline"
    return f"{one.name:<{_WIDTH}} {value:<{_VALUE}} {one.grade:<9}" + one.evidence


def _copy(copy: "Copy") -> Iterator[str]:
    held = f", {copy.entries} in all: {', '.join(copy.ranges)}" if copy.ranges else ", no entries"
    said = [f"{copy.bookie} ({copy.source}){held}"]
    said += ["fenced"] if copy.fenced else []
    said += ["in limbo"] if copy.limbo else []
    said += ["" if copy.complete else "not looked at completely"]
    said += [f"key {copy.key}"]
    said += [] if copy.explicit_lac is None else [f"explicit LAC {copy.explicit_lac}"]
    yield "; ".join(filter(None, said))
    yield from (f"  {header}" for header in copy.headers)


def _coverage(coverage: Mapping[str, Any]) -> Iterator[str]:
    bookies = coverage["bookies_looked_at"]
    yield f"bookies: {', '.join(bookies) if bookies else 'none'}"
    for key, text in (
        ("not_scanned", "known, and not looked at"),
        ("not_complete", "not looked at completely"),
        ("stores", "stores and catalogs"),
        ("stores_with_gaps", "of these not read whole"),
    ):
        if coverage[key]:
            yield f"{text}: {', '.join(coverage[key])}"
    if not coverage["members_known_from"]:
        yield "nothing says which bookies the cluster has: others may hold this ledger"


def _next(found: "Explanation", given: Sequence[str], uri: str | None, plan: Path | None) -> str:
    if found.actions and plan is not None:
        return quote_command("bkmeta", "plan", "show", plan)
    unseen = found.coverage.bookies.not_scanned
    if unseen and (found.standing == "undecided" or found.outcome == "held"):
        more = f", and {len(unseen) - _NAMED} more" if len(unseen) > _NAMED else ""
        return f"collect {', '.join(unseen[:_NAMED])}{more}, and give what that makes, too: --inventory DIR"
    if found.standing == "undecided" and not found.coverage.bookies.members_known_from:
        return "name every bookie of the cluster in a file, one id a line: --expect-bookies FILE"
    if found.standing == "undecided":
        return "give what was not looked at: inventories with --inventory, the store with --metadata"
    if found.outcome and plan is None and not found.stored:
        store = [] if uri is not None else ["--metadata", "URI"]
        return quote_command("bkmeta", "recover", *given, *store, "--out", "plan")
    return ""
