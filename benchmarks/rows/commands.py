"""The row about commands that people wait for: what they take of a plan, whatever its size."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.data import inventories, recovered
from benchmarks.data.cache import kept
from benchmarks.data.ledgers import chunk
from benchmarks.measure import Cost, bkmeta, python, run
from benchmarks.pairs import Contestant, Limits
from benchmarks.rows.row import STAGES, Place, Row, require_whole

_MIB: Final = 1 << 20
_BYTES: Final = "cat of the plan's files"


@contextmanager
def _commands(place: Place) -> Iterator[dict[str, Contestant]]:
    found = kept(place.home, inventories.write, place.ledgers)
    folder = kept(place.home, recovered.write, place.ledgers, inventories)
    plan, journal, out = folder / recovered.PLAN, folder / recovered.JOURNAL, place.scratch / "edited"
    ledger = int(chunk(0, place.ledgers).ledger[-1])

    def ask(*words: object) -> Cost:
        return run(bkmeta(*words, "--json"))

    taken = json.loads((folder / recovered.COST).read_text())
    note = (
        f"`recover` of them, the whole command: {taken['seconds']:.1f} s, cpu {taken['cpu_s']:.1f} s, "
        f"its largest process {taken['peak'] / _MIB:.0f} MiB"
    )

    def show() -> Cost:
        shown = ask("plan", "show", plan)
        said = {**shown.said["counts"], "note": note}
        return require_whole(place, Cost(shown.seconds, shown.cpu_s, shown.peaks, said))

    def edit() -> Cost:
        shutil.rmtree(out, ignore_errors=True)
        return ask("plan", "edit", plan, "--drop", ledger, "--out", out)

    yield {
        "plan show": show,
        "plan edit, one ledger": edit,
        "explain": lambda: ask("explain", ledger, "--inventory-dir", found, "--plan", plan),
        "the report": lambda: require_whole(place, run(python(STAGES, "page", plan, found))),
        "audit verify": lambda: ask("audit", "verify", journal),
        _BYTES: lambda: run(["bash", "-c", f"find '{plan}' -type f -print0 | xargs -0 cat > /dev/null"]),
    }


ROWS: Final = (
    Row(
        "commands",
        100.0,
        "whole commands on a plan and its journal, with the interpreter's start, beside what reads the plan's bytes",
        10_000_000,
        _commands,
        fewest=1,
        limits=Limits(10.0, 1 << 30),
    ),
)
