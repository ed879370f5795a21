"""What disks, crashes and foreign writers do to bytes, done to real ones; and what a parser may make of the result.

Inputs are made a hundred at a time, of the number of the first and of the parser's name: a failure names them, and
they can be made again.

    bound                of one input
    errors               those that have a name, and those that the parser's own docstring names
    memory               256 MiB more than before, with all that Python keeps
    time                 20 s of this process's CPU, so that a machine under load does not count
"""

import resource
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import FrameType
from typing import Final

from tests.support.parsers import PARSERS, Parser

MORE_MIB: Final = 256
CPU_S: Final = 20.0
_TOGETHER: Final = 100
_NUMBERS: Final = (
    0,
    1,
    -1,
    15,
    16,
    0x7F,
    0x80,
    0xFF,
    1 << 16,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 32,
    (1 << 63) - 1,
    -(1 << 63),
)


@dataclass(frozen=True, slots=True)
class Tried:
    """What inputs cost.

    Attributes:
        inputs: how many.
        cpu_s: of this process, for all.
        slowest_s: the one that took longest, or the hundred of it where many are read together.
        more_mib: by which the process's largest memory grew.
    """

    inputs: int
    cpu_s: float
    slowest_s: float
    more_mib: float


def changed(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Return real bytes with a few of the things done to them that disks, crashes and foreign writers do."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 9))):
        at = random.randrange(len(data) + 1)
        size = random.choice((1, 2, 4, 8, random.randrange(1, 200)))
        match random.randrange(9):
            case 0 | 1:
                if data:
                    data[at % len(data)] ^= 1 << random.randrange(8)
            case 2:
                wide = random.choice((1, 2, 4, 8))
                number = random.choice(_NUMBERS) + random.randrange(-2, 3)
                new = (number % (1 << 8 * wide)).to_bytes(wide, random.choice(("big", "little")))
                data[at : at + wide] = new
            case 3:
                data[at : at + size] = random.randbytes(len(data[at : at + size]))
            case 4:
                data[at : at + size] = bytes(len(data[at : at + size]))
            case 5:
                del data[at : at + size]
            case 6:
                data[at:at] = data[at : at + size] or b"\0"
            case 7:
                del data[at:]
            case _:
                other = random.choice(seeds)
                start = random.randrange(len(other) + 1)
                data[at:] = other[start:]
    return bytes(data)


def attempt(name: str, raw: bytes) -> None:
    """Give bytes to a parser.

    Raises:
        AssertionError: it raised what it must not; the first bytes are named.
    """
    parser = PARSERS[name]
    try:
        parser.parse(raw)
    except parser.may_raise:
        pass
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__} of {len(raw)} bytes, {raw[:300].hex()}") from error


def fuzz(name: str, count: int, first: int = 0) -> Tried:
    """Give a parser so many changed inputs.

    Args:
        name: of `PARSERS`.
        count: of inputs.
        first: the number of the first, a multiple of a hundred.

    Raises:
        AssertionError: a bound was not kept; the input is named by its bytes, and its hundred by the first number.
    """
    parser = PARSERS[name]
    seeds = list(parser.seeds())
    if not seeds or not all(seeds):
        raise AssertionError(f"{name}: no real bytes to begin from")
    for seed in seeds:
        attempt(name, seed)
    before, begun, slowest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time(), 0.0
    with _cpu_bound() as renew:
        for number in range(first, first + count, _TOGETHER):
            random = Random(f"{name} {number}")
            raws = [changed(random, seeds) for _ in range(min(_TOGETHER, first + count - number))]
            for some in [raws] if parser.together else ([raw] for raw in raws):
                renew()
                since = time.process_time()
                try:
                    _take(name, parser, some)
                except (AssertionError, _TooLongError) as error:
                    raise AssertionError(f"inputs from {number} on: {error}") from error
                slowest = max(slowest, time.process_time() - since)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if more >= MORE_MIB:
        raise AssertionError(f"{name}: {more:.0f} MiB more")
    return Tried(count, time.process_time() - begun, slowest, more)


def _take(name: str, parser: Parser, raws: list[bytes]) -> None:
    if parser.together is None:
        attempt(name, raws[0])
        return
    try:
        parser.together(raws)
    except parser.may_raise:
        for raw in raws:
            attempt(name, raw)
    except Exception as error:
        for raw in raws:
            attempt(name, raw)
        raise AssertionError(f"{name}: {type(error).__name__}, only of all together") from error


class _TooLongError(Exception):
    """One input took more than its share of the CPU."""


@contextmanager
def _cpu_bound() -> "Iterator[_Renew]":
    def end(_signal: int, _frame: FrameType | None) -> None:
        raise _TooLongError(f"more than {CPU_S} s of CPU")

    former = signal.signal(signal.SIGPROF, end)
    try:
        yield _Renew()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)


class _Renew:
    def __call__(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
