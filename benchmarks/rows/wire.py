"""Rows about running bookies, asked over the wire, against BookKeeper's own client."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Final

from benchmarks.measure import Cost, beside_servers, python, run
from benchmarks.pairs import Contestant
from benchmarks.rows.row import STAGES, Place, Row, require_whole
from benchmarks.servers.bookies import JAVA_IN_FLIGHT, LEDGERS, bookies, client

_CPU: Final = 0.5
"""Of clients alone: by the clock bookies on the same cores are most of what is measured."""


def _wire(count: int) -> Callable[[Place], AbstractContextManager[dict[str, Contestant]]]:
    @contextmanager
    def row(place: Place) -> Iterator[dict[str, Contestant]]:
        java = client(place.home)
        asked = place.ledgers - place.ledgers % count
        with bookies(count) as (process, addresses):

            def ask(command: list[str]) -> Cost:
                return require_whole(replace(place, ledgers=asked), beside_servers([process], lambda: run(command)))

            yield {
                "wire": lambda: ask(python(STAGES, "wire", LEDGERS, asked, *addresses)),
                "BookKeeper's client": lambda: ask([*java, str(LEDGERS), str(asked), str(JAVA_IN_FLIGHT), *addresses]),
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
        cpu_goal=_CPU,
    ),
    Row("wire-3", 0.3, "the same, of three bookies at the same time", 1_000_000, _wire(3), cpu_goal=_CPU),
)
