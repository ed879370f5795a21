"""`conf/`: the units that follow a store, and that run an observer, name options that exist."""

import configparser
import shlex
from typing import Final

import pytest

from tests.support.command import PROGRAM, ROOT, commands

UNITS: Final = {"bkmeta-backup.service": "backup follow", "bkmeta-observer.service": "backup observer"}


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_runs_its_command(name: str) -> None:
    """With the program by its path, options that it has, and what it demands; it is started again when it ends."""
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign] # the way that configparser documents
    parser.read(ROOT / "conf" / name)
    program, *words = shlex.split(parser["Service"]["ExecStart"])
    assert program.rpartition("/")[2] == PROGRAM.name
    assert " ".join(words[:2]) == UNITS[name]
    command = commands()[UNITS[name]]
    typed = {word for word in words if word.startswith("--")}
    assert typed <= {option for parameter in command.params for option in parameter.opts}
    assert {max(parameter.opts, key=len) for parameter in command.params if parameter.required} <= typed
    assert parser["Service"]["Restart"] == "always"
    assert parser["Install"]["WantedBy"] == "multi-user.target"
