"""Rows about running bookies, asked over the wire, against BookKeeper's own client."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Final

from benchmarks.measure import Cost, python, run
from benchmarks.pairs import Contestant
from benchmarks.rows.row import STAGES, Place, Row, demand_whole
from benchmarks.servers.bookies import JAVA_IN_FLIGHT, LEDGERS, bookies, client


def _wire(count: int) -> Callable[[Place], AbstractContextManager[dict[str, Contestant]]]:
    @contextmanager
    def row(place: Place) -> Iterator[dict[str, Contestant]]:
        java = client(place.home)
        asked = place.ledgers - place.ledgers % count
        with bookies(count) as addresses:

            def whole(cost: Cost) -> Cost:
                return demand_whole(replace(place, ledgers=asked), cost)

            yield {
                "wire": lambda: whole(run(python(STAGES, "wire", LEDGERS, asked, *addresses))),
                "BookKeeper's client": lambda: whole(
                    run([*java, str(LEDGERS), str(asked), str(JAVA_IN_FLIGHT), *addresses])
                ),
            }

    return row


ROWS: Final = (
    Row(
        "wire",
        0.3,
        "lists of entries of one running bookie, decoded, against BookKeeper's own client with "
        f"{JAVA_IN_FLIGHT} in flight; both warm",
        1_000_000,
        _wire(1),
    ),
    Row("wire-3", 0.3, "the same, of three bookies at the same time", 1_000_000, _wire(3)),
)
