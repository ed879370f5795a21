"""What the operator knows, and what the cluster's own ledgers show: both decide of a ledger.

Quorums may be stated of ranges of ledgers, or of what an owner's ledgers were written with:

    LEDGER E/W/A            one ledger
    FIRST..LAST E/W/A       a range of them
    owner=NAME E/W/A        ledgers of an owner, as references have it; NAME* for all whose owner begins so

A line a statement; what follows a # is a remark. The first line that a ledger fits is the one that counts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.operator_files import read_operator_text
from recovery.codecs.store import Layout
from recovery.errors import InputError
from recovery.infer.lost_disks import LostDisk
from recovery.infer.search import Tail

Shapes = Sequence[Mapping[str, Any]]
"""Hypotheses of a prior: ensemble, write, weight, source."""
Quorum = tuple[int, int, int]
MOST_LINES: Final = 1000
_LINE: Final = re.compile(r"(?:(\d{1,18})(?:\.\.(\d{1,18}))?|owner=(\S.*?))\s+(\d{1,6})/(\d{1,6})/(\d{1,6})")
_REMEDY: Final = "write FIRST..LAST E/W/A, or owner=NAME E/W/A, with E ≥ W ≥ A ≥ 1"

_REFERENCES: Final = "give the references as well"


@dataclass(frozen=True, slots=True)
class QuorumStatement:
    """One line.

    Attributes:
        quorum: (E, W, A).
        first, last: ids of scope 0 that it is of; none where it is of an owner.
        owner: that it is of; with a star at the end all that begin so; empty: of a range.
    """

    quorum: Quorum
    first: int = 0
    last: int = -1
    owner: str = ""

    def __str__(self) -> str:
        subject = f"owner={self.owner}" if self.owner else f"{self.first}..{self.last}"
        return f"{subject} {'/'.join(map(str, self.quorum))}"


@dataclass(frozen=True, slots=True)
class StatedQuorums:
    """All that is stated, in its order."""

    statements: tuple[QuorumStatement, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            InputError: it cannot be read, or a line is none.
        """
        lines = read_operator_text(path, "name a text file").splitlines()
        statements = []
        for number, line in enumerate(lines, 1):
            text = line.split("#", 1)[0].strip()
            if text:
                statements.append(_parse(text, f"{path}, line {number}"))
        if len(statements) > MOST_LINES:
            raise InputError(str(path), f"has more than {MOST_LINES} statements", "unite ranges that follow each other")
        if not statements:
            raise InputError(str(path), "states nothing", "write a line FIRST..LAST E/W/A, or leave the file out")
        return cls(tuple(statements))

    @classmethod
    def read_for(cls, path: Path | None, *, has_references: bool) -> Self:
        """Read a file, if there is one, whose statements are of owners only where references name these.

        Raises:
            InputError: it cannot be read, or who owns what is not known.
        """
        stated = cls() if path is None else cls.read(path)
        if stated.names_owners and not has_references:
            raise InputError(str(path), "names owners, and nothing says which ledgers are theirs", _REFERENCES)
        return stated

    @property
    def names_owners(self) -> bool:
        """Whether some statement is of an owner, which only references tell."""
        return any(statement.owner for statement in self.statements)

    def split(
        self, keys: pa.Table, references: pa.Table | None
    ) -> Iterator[tuple[Quorum | None, npt.NDArray[np.bool_]]]:
        """Yield each quorum that is stated of some rows, with these; with None the others, if there are any.

        Args:
            keys: columns scope and ledger.
            references: what upper layers know: columns scope, ledger and owner.
        """
        scope, ledger = (keys[name].to_numpy() for name in ("scope", "ledger"))
        stated = np.full(len(ledger), -1)
        quorums = list(dict.fromkeys(statement.quorum for statement in self.statements))
        for statement in self.statements:
            fits = (
                _find_owned(keys, references, statement.owner)
                if statement.owner
                else (scope == 0) & (ledger >= statement.first) & (ledger <= statement.last)
            )
            stated[fits & (stated < 0)] = quorums.index(statement.quorum)
        for number in np.unique(stated).tolist():
            yield (quorums[number] if number >= 0 else None), stated == number


def _parse(text: str, where: str) -> QuorumStatement:
    match = _LINE.fullmatch(text)
    if match is None:
        raise InputError(where, f"{text!r} is not a statement", _REMEDY)
    first, last, owner = match.group(1, 2, 3)
    ensemble, write, ack = (int(part) for part in match.group(4, 5, 6))
    if not ensemble >= write >= ack >= 1:
        raise InputError(where, f"{text!r} has quorums that no ledger has", _REMEDY)
    if owner is not None:
        return QuorumStatement((ensemble, write, ack), owner=owner)
    if last is not None and int(last) < int(first):
        raise InputError(where, f"{text!r} ends before it begins", _REMEDY)
    return QuorumStatement((ensemble, write, ack), int(first), int(last or first))


def _find_owned(keys: pa.Table, references: pa.Table | None, owner: str) -> npt.NDArray[np.bool_]:
    """Say which rows are of ledgers of an owner."""
    mask = np.zeros(keys.num_rows, np.bool_)
    if references is None:
        return mask
    is_prefix = owner.endswith("*")
    fits = pc.starts_with(references["owner"], owner[:-1]) if is_prefix else pc.equal(references["owner"], owner)
    owned = references.filter(pc.fill_null(fits, fill_value=False))
    if not owned.num_rows:
        return mask
    pairs = [
        np.stack([pc.fill_null(table[name], 0).to_numpy().astype(np.int64) for name in ("scope", "ledger")], axis=1)
        for table in (owned, keys)
    ]
    code = np.unique(np.concatenate(pairs), axis=0, return_inverse=True)[1].ravel()
    is_owned: npt.NDArray[np.bool_] = np.isin(code[owned.num_rows :], code[: owned.num_rows])
    return is_owned


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the operator knows; as for `recover`.

    Attributes:
        passwords: candidates; never shown.
        expected: bookies of the cluster; None: not said.
        default_quorum: (E, W, A).
        tail: where ledgers are closed whose last entries may not have been acknowledged.
        layout: of the store that is to be repaired; None: not known.
        references: what upper layers know, of all their ledgers; None: not given.
        aliases: other names of bookies in records → ids.
        stated_quorums: (E, W, A) of some ledgers.
        lost: disks of which nothing will come back.
    """

    passwords: tuple[bytes, ...] = field(default=(b"",), repr=False)
    expected: tuple[str, ...] | None = None
    default_quorum: tuple[int, int, int] | None = None
    tail: Tail = Tail.INCLUSIVE
    layout: Layout | None = None
    references: pa.Table | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    stated_quorums: StatedQuorums = field(default_factory=StatedQuorums)
    lost: tuple[LostDisk, ...] = ()
