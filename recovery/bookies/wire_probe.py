"""Which bookies of a cluster can be asked for lists: each is asked for a few ledgers that it should have."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from backends.bookie import frames
from backends.bookie.client import BookieConnection, BookieOptions, BookieWire
from backends.bookie.frames import BookieAnswer, RequestOutcome
from recovery.bookies.addresses import NamedMember
from recovery.bookies.recorded_members import SAMPLE
from recovery.bookies.wire_results import AskedKind, BookieResult

_FAILED: Final = {
    RequestOutcome.NO_ANSWER: AskedKind.NO_ANSWER,
    RequestOutcome.REFUSED: AskedKind.REFUSED,
    RequestOutcome.NOT_UNDERSTOOD: AskedKind.NOT_UNDERSTOOD,
}


async def probe_bookies(
    wanted: Sequence[NamedMember], samples: Mapping[str, Sequence[int]], options: BookieOptions
) -> dict[str, BookieResult]:
    """Return of each bookie whether it can be collected; on connections of their own, which an answer may break."""
    addresses = {m.bookie: m.address for m in wanted if m.address is not None}
    with BookieWire(addresses, options) as wire:
        probed = await asyncio.gather(*(_probe(wire[name], name, samples.get(name, ())) for name in addresses))
    results = {result.bookie: result for result in probed}
    return {m.bookie: results.get(m.bookie) or BookieResult(m.bookie, AskedKind.NO_ANSWER, m.why) for m in wanted}


async def _probe(bookie: BookieConnection, name: str, ledgers: Sequence[int]) -> BookieResult:
    lists: list[BookieAnswer] = []
    reads: list[BookieAnswer] = []
    questions = [(reads, frames.bookie_info())]
    for ledger in ledgers[:SAMPLE]:
        questions += [(lists, frames.list_entries(ledger)), (reads, frames.read_entry(ledger, frames.LAST))]
    await bookie.ask(questions, lambda answers, answer: answers.append(answer))
    understood = {RequestOutcome.ANSWER, RequestOutcome.NEGATIVE}
    if any(answer.outcome in understood for answer in lists):
        return BookieResult(name, AskedKind.COLLECTED)
    if not any(answer.outcome in understood for answer in reads):
        return BookieResult(name, _FAILED[reads[0].outcome], reads[0].said)
    if any(answer.outcome is RequestOutcome.ANSWER for answer in reads[1:]):
        return BookieResult(name, AskedKind.NO_LISTS, lists[0].said)
    return BookieResult(name, AskedKind.COLLECTED)
