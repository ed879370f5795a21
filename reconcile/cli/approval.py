"""The second person: where a file asks for one, a change of a store needs the name and the confirmed hash of another.

    key       is
    commands  those that need a second person: apply, thaw, undo
    people    who may be that person; without it anybody but who runs the command

The file is the one that BKMETA_APPROVAL names; without that, /etc/bkmeta/approval.toml, if it is there. Who runs a
command could leave both out: the file shows a team's rule and keeps its record, it is no lock.
"""

import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from reconcile.errors import GuardRefusedError
from recovery.errors import InputError

if TYPE_CHECKING:
    from reconcile.write.audit_journal import Approval

VARIABLE: Final = "BKMETA_APPROVAL"
"""Environment variable: the file that says which commands need a second person."""
DEFAULT_FILE: Final = Path("/etc/bkmeta/approval.toml")
COMMANDS: Final = ("apply", "thaw", "undo")
"""Commands that can ask for a second person."""
_LONGEST_NAME: Final = 200
_DIGITS: Final = 8
"""Digits of a hash that count as having read it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which commands need a second person, and who may be that.

    Attributes:
        source: the file.
        commands: their names.
        people: None: anybody.
    """

    source: Path
    commands: frozenset[str]
    people: frozenset[str] | None


def read_policy() -> Policy | None:
    """Return what the file of this machine asks for; None: there is none.

    Raises:
        InputError: unreadable, no TOML, or with keys or values that mean nothing here.
    """
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else DEFAULT_FILE
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if not named:
            return None
        raise InputError(str(path), "is not there", f"mend {VARIABLE}, which names it") from error
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "make it readable") from error
    except ValueError as error:
        raise InputError(str(path), f"is not TOML: {error}", "mend it") from error
    unknown = sorted(set(content) - {"commands", "people"})
    if unknown:
        raise InputError(str(path), f"has a key {unknown[0]!r}", "the keys are commands, people")
    commands, people = _read_names(path, content, "commands"), _read_names(path, content, "people")
    if not commands or not commands <= set(COMMANDS):
        raise InputError(f"{path}, commands", f"is not a list of {', '.join(COMMANDS)}", "mend it")
    return Policy(path, commands, people)


def _read_names(path: Path, content: dict[str, object], key: str) -> frozenset[str] | None:
    names = content.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{path}, {key}", "is not a list of names in quotes", "mend it")
    return frozenset(names)


def _parse_approval(_context: click.Context, _option: click.Parameter, text: str | None) -> "Approval | None":
    """Read NAME=HASH."""
    if text is None:
        return None
    from reconcile.write.audit_journal import Approval

    name, equals, digits = text.rpartition("=")
    is_hash = len(digits) >= _DIGITS and set(digits.lower()) <= set("0123456789abcdef")
    if not equals or not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME or not is_hash:
        raise click.BadParameter(f"write NAME=HASH, at least {_DIGITS} digits of the hash that they confirmed")
    return Approval(name.strip(), digits.lower())


approval_option = click.option(
    "--approved-by",
    "approval",
    metavar="NAME=HASH",
    callback=_parse_approval,
    help="A second person, and the hash that they confirmed; kept in the journal.",
)


def demand_approval(
    command: str, approval: "Approval | None", wanted: str, is_confirmed: Callable[[str], bool] | None = None
) -> None:
    """Refuse what no second person confirmed, where the file asks for one.

    Args:
        command: of `COMMANDS`.
        approval: as it was given; None: not given.
        wanted: the hash of what would be done.
        is_confirmed: says whether a hash confirms it; None: its first digits do.

    Raises:
        GuardRefusedError: nobody approved it, or another hash; or who did is who runs this, or may not.
        InputError: the file cannot be used.
    """
    from reconcile.write.audit_journal import name_runner

    policy = read_policy()
    if approval is None:
        if policy is not None and command in policy.commands:
            problem = f"needs a second person, as {policy.source} says"
            remedy = f"have somebody else review it, then add who, and what they confirmed: --approved-by NAME={wanted}"
            raise GuardRefusedError(command, problem, remedy)
        return
    if not (is_confirmed or wanted.startswith)(approval.hash):
        problem = f"is not what {approval.by} confirmed: it has the hash {wanted[:12]}…, they said {approval.hash[:12]}"
        raise GuardRefusedError(command, problem, "have them review this one")
    if approval.by.casefold() == name_runner()["user"].casefold():
        raise GuardRefusedError(command, f"{approval.by} runs it: the second person is another", "ask somebody else")
    if policy is not None and policy.people is not None and approval.by not in policy.people:
        raise GuardRefusedError(
            command, f"{approval.by} is none of those who may approve it", f"they stand in {policy.source}: people"
        )


def carry_approval(approval: "Approval | None") -> list[str]:
    """Return the option as it was typed, for the next command."""
    return [] if approval is None else ["--approved-by", f"{approval.by}={approval.hash}"]
