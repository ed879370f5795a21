"""Commands run in this process, as `bkmeta` would run them: exit code, what is printed, and the result object."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from reconcile.cli.main import main


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The object on the last line of ``--json`` output."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Done:
    """Run a command line to its end."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return Done(code, printed.out, printed.err)
