"""What others wrote, made fit for a terminal and a page: names of files and nodes may hold what steers a screen."""

import re
from typing import Final

_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # all controls but tab and the end of a line
    "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # turn the direction of writing around
    "\u2028\u2029\ud800-\udfff]"  # end lines; bytes that are no text
)


def printable(text: str) -> str:
    """Return a text with what steers a screen written out; ends of lines stay."""
    return _STEERING.sub(_write_out, text)


def printable_line(text: str) -> str:
    """Return a text that is one line, and stays one."""
    return printable(text).replace("\n", r"\n")


def _write_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode()
