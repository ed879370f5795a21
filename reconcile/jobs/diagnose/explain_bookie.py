"""One bookie from every side: its ledgers as a dataset, a page, and files of ids that other commands take.

file           ledgers
named.txt      whose records name it
held.txt       that it holds
only.txt       of which it alone has entries
lacking.txt    closed, and it has fewer entries than their records ask of it
strays.txt     that it holds, listed, and no segment names it
unlisted.txt   that it holds, and the store does not list
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.clusters import open_inventories
from reconcile.explain.bookie import BookieSides, see_range
from reconcile.jobs.capture import capture_store
from reconcile.jobs.collect.tables import with_tables
from reconcile.jobs.context import Context, connect, throttle
from reconcile.report.bookie_page import bookie_page
from reconcile.report.pages import write_page
from reconcile.rules.segments.member_names import rename_members
from reconcile.stores import catalog_path
from recovery.bookies.recorded_members import sample_ledgers
from recovery.codecs.store import COOKIES
from recovery.dataset import Dataset, open_dataset, prepare, write_manifest, write_part
from recovery.errors import InputError
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.ids import LedgerId, bucket_ranges
from recovery.out_folder import write_whole
from recovery.place import DatasetPlace

STORE: Final = "store"
SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieRequest:
    """Which bookie, and what may know something of it.

    Attributes:
        bookie: its id.
        uri: the store, or a capture of it.
        inventories: folders of inventories; each bookie once.
        aliases: other names of bookies in records → ids.
        out: a new folder for the dataset, the page and the files; None: only numbers.
    """

    bookie: str
    uri: str
    inventories: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    out: DatasetPlace | None = None


def explain_bookie(request: BookieRequest, context: Context) -> BookieSides:
    """Say everything about one bookie; only the folder is written.

    Raises:
        DatasetError: an inventory or a catalog is damaged, or the folder cannot be written.
        InputError: two sources are of two clusters.
        UnsupportedStoreError: the URI is malformed, or of a store that is not read.
        UnavailableError: the store does not answer.
    """
    with with_tables(request.inventories, context.now()) as folders:
        return _explain_by(open_inventories(folders), request, context)


def _explain_by(inventories: Sequence[Dataset], request: BookieRequest, context: Context) -> BookieSides:
    if request.out is not None:
        prepare(request.out, "bookie", secret=True)
    with _read_store(request, context) as catalog, ExitStack() as stack:
        known, has = _list_known(catalog, request.aliases), _list_collected(inventories)
        if request.bookie not in known | has:
            raise InputError(
                request.bookie, "is not a bookie of the store, and of no inventory", "see bkmeta preflight"
            )
        files = (
            None if request.out is None else {name: _create(request.out, name, stack) for name in tables.BOOKIE_LISTS}
        )
        counts: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        first: dict[str, list[LedgerId]] = {name: [] for name in tables.BOOKIE_LISTS}
        parts: list[Part] = []
        spans = bucket_ranges(catalog.rows("ledgers") + sum(inventory.rows("copies") for inventory in inventories))
        with context.reporter.progress("looking at the bookie's ledgers", "parts") as progress:
            show = throttle(progress)
            for number, span in enumerate(spans, 1):
                stored = rename_members(catalog.read("ledgers", buckets=span), request.aliases)
                copies = [inventory.read("copies", buckets=span) for inventory in inventories]
                rows = see_range(request.bookie, stored, pa.concat_tables([tables.COPIES.empty_table(), *copies]))
                sums.update(_add_up(rows))
                for name, ledgers in _list_rows(rows):
                    counts[name] += ledgers.num_rows
                    ids = list(map(LedgerId, ledgers["scope"].to_pylist(), ledgers["ledger"].to_pylist()))
                    first[name] += ids[: SHOWN - len(first[name])]
                    if files is not None:
                        files[name].writelines(f"{ledger}\n".encode() for ledger in ids)
                if request.out is not None:
                    name = f"buckets-{span.start:04d}-{span.stop - 1:04d}"
                    parts.append(write_part(request.out, "ledgers", name, [rows], secret=True))
                show(number, len(spans))
        sides = BookieSides(
            request.bookie,
            request.bookie in known,
            request.bookie in has,
            tuple(sorted(known - has - {request.bookie})),
            {name: counts[name] for name in tables.BOOKIE_LISTS},
            sums["segments"],
            sums["due"],
            sums["held"],
            sums["only"],
            first,
        )
        if request.out is not None:
            write_page(request.out, lambda: bookie_page(sides, catalog, inventories, made=context.now()))
            binding = {"bookie": request.bookie, "uri": request.uri}
            coverage = {"collected": sides.collected, "not_collected": list(sides.not_collected)}
            write_manifest(request.out, "bookie", {"ledgers": parts}, binding=binding, coverage=coverage, secret=True)
    return sides


@contextmanager
def _read_store(request: BookieRequest, context: Context) -> Iterator[Dataset]:
    """Give the catalog of the store: a capture where it is, else one that is made, and kept where there is a folder."""
    path = catalog_path(request.uri)
    with ExitStack() as stack:
        if path is None:
            kept = request.out or Path(stack.enter_context(TemporaryDirectory(prefix="bkmeta-explain-")))
            path = str(kept / STORE)
            with connect(request.uri, context) as opened:
                capture_store(opened, kept / STORE, context)
        yield open_dataset(path, "catalog")


def _create(out: DatasetPlace, name: str, stack: ExitStack) -> BinaryIO:
    return stack.enter_context(write_whole(out / f"{name}.txt", secret=True)).sink


def _list_known(catalog: Dataset, aliases: Mapping[str, str]) -> set[str]:
    nodes = catalog.read("nodes", columns=["path", "kind"])
    cookies = nodes.filter(pc.equal(nodes["kind"], "cookie"))["path"].to_pylist()
    names = [path.removeprefix(f"{COOKIES}/") for path in cookies] + [*sample_ledgers(catalog)]
    return {aliases.get(name, name) for name in names}


def _list_collected(inventories: Sequence[Dataset]) -> set[str]:
    return {
        name
        for inventory in inventories
        for name in inventory.read("bookies", columns=["bookie"])["bookie"].to_pylist()
    }


def _list_rows(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each list; BOOKIE_LEDGERS in."""
    named = pc.greater(pc.list_value_length(rows["segments"]), 0)
    has_entries, listed = pc.greater(rows["held"], 0), rows["listed"]
    masks = {
        "named": named,
        "held": has_entries,
        "only": pc.greater(rows["only"], 0),
        "lacking": pc.fill_null(pc.greater(rows["due"], rows["held"]), fill_value=False),
        "strays": pc.and_(pc.and_(has_entries, listed), pc.invert(named)),
        "unlisted": pc.and_(has_entries, pc.invert(listed)),
    }
    for name in tables.BOOKIE_LISTS:
        yield name, rows.filter(masks[name])


def _add_up(rows: pa.Table) -> dict[str, int]:
    sums = {name: pc.sum(rows[name]).as_py() or 0 for name in ("due", "held", "only")}
    return sums | {"segments": pc.sum(pc.list_value_length(rows["segments"])).as_py() or 0}
