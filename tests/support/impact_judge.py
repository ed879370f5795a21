"""What becomes of a cluster when bookies are taken, found by placing every entry: slow, plain, and shared with nothing.

Nothing here is computed by residues or columns: each entry of each segment is put on its bookies one by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

READ_WRITE: Final = "read-write"
READ_ONLY: Final = "read-only"
DOWN: Final = "down"
GONE: Final = "gone"
UNRECOVERABLE: Final = "unrecoverable"
WORSE: Final = (READ_WRITE, READ_ONLY, DOWN, GONE, UNRECOVERABLE)
READABLE: Final = frozenset({READ_WRITE, READ_ONLY})


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger as its record has it; `last` is None of one that is not closed."""

    number: int
    quorum: tuple[int, int, int]
    state: str
    last: int | None
    segments: tuple[tuple[int, tuple[str, ...]], ...]
    marked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class World:
    """A cluster: bookie to state, bookie to rack, ledgers."""

    states: Mapping[str, str]
    racks: Mapping[str, str]
    ledgers: tuple[Ledger, ...] = ()


@dataclass(slots=True)
class Judged:
    """(ledger, segment, impact) to how many entries are hit."""

    entries: dict[tuple[int, int, str], int] = field(default_factory=dict)


def place(entry: int, quorum: tuple[int, int, int]) -> list[int]:
    """Return the positions of an entry."""
    size, write, _ = quorum
    return [(entry + i) % size for i in range(write)]


def is_covered(answering: Sequence[bool], quorum: tuple[int, int, int]) -> bool:
    """Whether enough positions answer for a recovery, as BookKeeper demands it."""
    size, write, ack = quorum
    for begin in range(size):
        silent = 0
        for i in range(write):
            if not answering[(begin + i) % size]:
                silent += 1
        if silent >= ack:
            return False
    return True


def take(world: World, bookies: Sequence[str], target: str) -> World:
    """Return the cluster with some bookies taken; what is worse already stays."""
    states = dict(world.states)
    for bookie in bookies:
        states[bookie] = max(states.get(bookie, DOWN), target, key=WORSE.index)
    return World(states, world.racks, world.ledgers)


def judge(world: World) -> Judged:
    """Return everything that is wrong."""
    judged = Judged()
    for ledger in world.ledgers:
        for number, (first, members) in enumerate(ledger.segments):
            _judge_segment(world, ledger, number, first, members, judged)
    return judged


def _judge_segment(
    world: World, ledger: Ledger, number: int, first: int, members: tuple[str, ...], judged: Judged
) -> None:
    size = ledger.quorum[0]
    is_last = number == len(ledger.segments) - 1
    may_grow = is_last and ledger.last is None
    last = ledger.last if is_last else ledger.segments[number + 1][0] - 1
    if may_grow:
        # Whatever is written next: enough entries that each place comes up.
        last = first + 2 * size
    assert last is not None
    states = [world.states.get(bookie, DOWN) for bookie in members]

    def copy_state(position: int) -> str:
        state = states[position]
        return max(state, DOWN, key=WORSE.index) if members[position] in ledger.marked else state

    hit: dict[str, int] = {}
    lost_positions: set[int] = set()
    waits = False
    for entry in range(first, last + 1):
        positions = place(entry, ledger.quorum)
        copies = [copy_state(position) for position in positions]
        readable = [position for position in positions if copy_state(position) in READABLE]
        if not readable:
            all_gone = all(state in (GONE, UNRECOVERABLE) for state in copies)
            name = "DATA_LOSS" if all_gone else "READ_AVAILABILITY_LOSS"
            hit[name] = hit.get(name, 0) + 1
            waits |= not all(state == UNRECOVERABLE for state in copies)
        else:
            lost_positions |= {position for position in positions if copy_state(position) not in READABLE}
            if len({world.racks[members[position]] for position in readable}) == 1:
                hit["READ_MARGIN_LOSS"] = hit.get("READ_MARGIN_LOSS", 0) + 1
    writable = {bookie for bookie, state in world.states.items() if state == READ_WRITE}
    outside = len(writable - set(members))
    if waits or len(lost_positions) > outside:
        hit["REBUILDING_STALL"] = max(0, last - first + 1)
    if may_grow and not is_covered([state in READABLE for state in states], ledger.quorum):
        hit["RECOVERY_LOSS"] = 0
    unwritable = sum(state != READ_WRITE for state in states)
    if may_grow and ledger.state == "OPEN" and unwritable > outside:
        hit["WRITE_AVAILABILITY_LOSS"] = 0
    for name, entries in hit.items():
        judged.entries[ledger.number, number, name] = 0 if may_grow else entries


def make_world(random: Random) -> World:
    """Make a random cluster."""
    count = random.randint(3, 9)
    names = [f"bk{number}:3181" for number in range(count)]
    racks = {name: f"/r{random.randint(1, 4)}" for name in names}
    weights = random.choice(((1, 0, 0, 0, 0), (8, 1, 1, 0, 0), (5, 1, 2, 1, 1)))
    states = dict(zip(names, random.choices(WORSE, weights, k=count), strict=True))
    ledgers = tuple(_make_ledger(random, number, names) for number in range(random.randint(1, 6)))
    return World(states, racks, ledgers)


def _make_ledger(random: Random, number: int, names: Sequence[str]) -> Ledger:
    size = random.randint(1, min(6, len(names)))
    write = random.randint(1, size)
    ack = random.randint(1, write)
    segments = []
    first = 0
    for _ in range(random.choice((1, 1, 2, 3))):
        segments.append((first, tuple(random.sample(names, size))))
        first += random.choice((1, 2, 3, size, 2 * size + 1, 40))
    state = random.choice(("CLOSED", "CLOSED", "OPEN", "IN_RECOVERY"))
    begin = segments[-1][0]
    last = begin - 1 + random.choice((0, 1, 2, 3, 7, 50)) if state == "CLOSED" else None
    marked = frozenset(random.sample(names, 1)) if random.random() < 0.2 else frozenset[str]()
    return Ledger(number, (size, write, ack), state, last, tuple(segments), marked)
