"""Rows about what Spark does: `recover` and its comparison."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.data import catalogs, inventories, nasties
from benchmarks.data.cache import kept
from benchmarks.measure import python, run, staying
from benchmarks.pairs import Contestant
from benchmarks.rows.row import STAGES, Place, Row, require_whole
from tests.simulation import histories, profiles, protocol, simulated_bookie
from tests.simulation import inventories as simulated_inventories

_GROUPED: Final = "DuckDB, grouped"
_EARLIER: Final = "the same, earlier"


def _open_earlier(stack: ExitStack, place: Place, checkout: Path, stage: str, folder: Path) -> dict[str, Contestant]:
    """Start a stage of another checkout on the same data; it writes where the stage does."""
    program = stack.enter_context(staying(python(STAGES, stage, folder, place.scratch / "earlier"), checkout))
    return {_EARLIER: lambda: require_whole(place, program.run())}


@contextmanager
def _reconstruct(place: Place) -> Iterator[dict[str, Contestant]]:
    folder = kept(place.home, inventories.write, place.ledgers)
    with ExitStack() as stack:
        product = stack.enter_context(staying(python(STAGES, "recover", folder, place.scratch / "plan")))
        stages = {"recover": lambda: require_whole(place, product.run())}
        if place.earlier:
            stages |= _open_earlier(stack, place, place.earlier, "recover", folder)
        elif not place.alone:
            floor = stack.enter_context(staying(python(STAGES, "pass-through", folder)))
            group, flat = (
                stack.enter_context(staying(python(STAGES, name, folder, place.scratch / f"{name}.parquet")))
                for name in ("group", "group-flat")
            )
            stages |= {
                "inference, one core": lambda: require_whole(place, run(python(STAGES, "infer", folder))),
                _GROUPED: lambda: require_whole(place, group.run()),
                "DuckDB, flat columns": lambda: require_whole(place, flat.run()),
                "Spark, pass-through": floor.run,
            }
        yield stages


@contextmanager
def _nasty(place: Place) -> Iterator[dict[str, Contestant]]:
    simulated = (histories, profiles, protocol, simulated_bookie, simulated_inventories)
    nasty = kept(place.home, nasties.write, place.ledgers, inventories, *simulated)
    with ExitStack() as stack:
        product = stack.enter_context(staying(python(STAGES, "recover", nasty, place.scratch / "nasty")))
        stages = {"recover, nasty": lambda: require_whole(place, product.run())}
        if place.earlier:
            stages |= _open_earlier(stack, place, place.earlier, "recover", nasty)
        elif not place.alone:
            clean = kept(place.home, inventories.write, place.ledgers)
            floor = stack.enter_context(staying(python(STAGES, "recover", clean, place.scratch / "clean")))
            stages |= {"recover, clean": lambda: require_whole(place, floor.run())}
        yield stages


@contextmanager
def _diff(place: Place) -> Iterator[dict[str, Contestant]]:
    folder = kept(place.home, catalogs.write, place.ledgers)
    with ExitStack() as stack:
        product = stack.enter_context(staying(python(STAGES, "diff", folder, place.scratch / "compared")))
        stages = {"diff": lambda: require_whole(place, product.run())}
        if place.earlier:
            stages |= _open_earlier(stack, place, place.earlier, "diff", folder)
        elif not place.alone:
            floor = stack.enter_context(staying(python(STAGES, "outer-join", folder)))
            stages |= {"Spark, outer join": lambda: require_whole(place, floor.run())}
        yield stages


ROWS: Final = (
    Row(
        "reconstruct",
        1.5,
        "`recover` of three copies a ledger, inventories to plan, against Spark that reads the same files, hands every "
        "row to Python and back, and drops it; both sessions run already",
        10_000_000,
        _reconstruct,
        {_GROUPED: 2.0},
        has_earlier=True,
    ),
    Row(
        "nasty",
        1.5,
        "`recover` where of a hundred ledgers one more changed bookies, up to three times, and one was re-replicated, "
        "and of a thousand one is damaged, against `recover` of the same number without",
        1_000_000,
        _nasty,
        has_earlier=True,
    ),
    Row(
        "diff",
        1.5,
        "`recover` that compares a store's catalog with an earlier one, record by record, against Spark's full outer "
        "join of both on ids and 64-bit hashes of the records; both sessions run already",
        1_000_000,
        _diff,
        has_earlier=True,
    ),
)
