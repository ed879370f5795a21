"""Any bytes, into every parser: what comes back is values, typed damage or a named error."""

import os
from collections.abc import Callable
from typing import Final

import pytest

from tests.support.fuzzing import fuzz
from tests.support.parsers import PARSERS

pytestmark = pytest.mark.long

COUNT: Final = int(os.environ.get("BKMETA_SOAK_FUZZ", "4000"))
"""Inputs for each parser."""
_FULL: Final = 100_000
"""From here on slow parsers get as many inputs as quick ones."""


@pytest.mark.parametrize("name", PARSERS)
def test_no_bytes_break_a_parser(name: str, record_property: Callable[[str, object], None]) -> None:
    """No other error, and neither memory nor time beyond a bound; the bytes are named, and can be made again."""
    tried = fuzz(name, COUNT if COUNT >= _FULL else max(COUNT // PARSERS[name].times, 10))
    record_property("tried", str(tried))


@pytest.mark.parametrize(("name", "first"), [("table of a dataset", 2300), ("table of a dataset", 13_900)])
def test_inputs_that_broke_a_parser_once_do_not_again(name: str, first: int) -> None:
    """The hundred inputs from a number on: a column's name that is no text, statistics of another type than theirs."""
    fuzz(name, 100, first)
