"""Any bytes, into every parser: what comes back is values, typed damage or a named error."""

import os
import resource
from random import Random
from typing import Final

import pytest

from backends.errors import BackendError
from recovery.errors import RecoveryError
from tests.property.parsers import PARSERS

COUNT: Final = int(os.environ.get("BKMETA_SOAK_FUZZ", "4000"))
"""Inputs for each parser."""
MORE_MIB: Final = 256
"""Memory that a parser of a few thousand bytes may come to need, with all that Python keeps."""
NUMBERS: Final = (
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


def changed(random: Random, seeds: list[bytes]) -> bytes:
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
                number = random.choice(NUMBERS) + random.randrange(-2, 3)
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


@pytest.mark.parametrize("name", PARSERS)
def test_no_bytes_break_a_parser(name: str) -> None:
    """Neither another error, nor memory beyond a bound; a number of the input tells which bytes they were."""
    parser = PARSERS[name]
    seeds = list(parser.seeds())
    assert seeds
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(COUNT // parser.times if COUNT < 100_000 else COUNT):
        raw = changed(Random(f"{name} {number}"), seeds)
        try:
            parser.parse(raw)
        except (RecoveryError, BackendError):
            pass
        except Exception as error:
            raise AssertionError(f"{name}, input {number}, {raw[:200].hex()}") from error
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MORE_MIB << 10
