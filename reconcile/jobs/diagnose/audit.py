"""What journals say: who wrote what when, and whether every line is as it was written."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from reconcile.errors import JournalError
from reconcile.write.audit_journal import JOURNAL, JournalLine, Torn, report_foreign, scan

_INTENT: Final = re.compile(
    rb'\{"n":(\d+),"prev":"([0-9a-f]*)","at":"([^"\\]+)","event":"intent","batch":(\d+),"kind":"\w+","writes":(?=\[\[)'
)
"""The start of a line that announces a batch: nearly all bytes of a journal are such lines'."""
_OP: Final = re.compile(rb'\[\d+,"(\w+)",')
"""The start of one write of a batch. In a string of JSON no quote is behind a comma but escaped."""
_ENDS: Final = {"end": "ended", "frozen": "frozen", "thawed": "thawed", "undone": "undone", "stopped": "stopped"}
"""Event of the last line of a run that came to its end → how it ended."""


@dataclass(slots=True)
class JournalRun:
    """One run of a command that wrote, as its journal has it.

    Attributes:
        at: when it began, as its first line has it.
        by: user, host and version.
        reason: why, as somebody typed it.
        approved: by whom and which hash, of each who approved it.
        writes: op → keys that were written.
        conflicts: keys that somebody had changed.
        until: of its last line.
        ended: how it ended; empty: it was killed, or is still under way.
    """

    at: str
    by: Mapping[str, str]
    reason: str | None
    approved: Sequence[Mapping[str, str]]
    writes: Counter[str] = field(default_factory=Counter)
    conflicts: int = 0
    until: str = ""
    ended: str = ""


@dataclass(slots=True)
class JournalAccount:
    """One journal, read to its end.

    Attributes:
        path: the file.
        binding: what it is of: plan, root, store.
        runs: in their order.
        records: whole lines.
        torn: bytes of an unfinished line at its end.
        head: hash of its last line.
        heads: of those that were asked for, the ones that a line begins with.
    """

    path: Path
    binding: Mapping[str, Any] = field(default_factory=dict)
    runs: list[JournalRun] = field(default_factory=list)
    records: int = 0
    torn: int = 0
    head: str = ""
    heads: set[str] = field(default_factory=set)

    @property
    def is_endless(self) -> bool:
        """Whether its last run has no end."""
        return bool(self.runs) and not self.runs[-1].ended


@dataclass(frozen=True, slots=True)
class JournalsVerified:
    """Journals, and what is wrong with them.

    Attributes:
        journals: those that agree with their hashes.
        altered: an error for each of the others.
        missing_heads: hashes that somebody kept, and that no line has.
    """

    journals: tuple[JournalAccount, ...]
    altered: tuple[JournalError, ...]
    missing_heads: tuple[str, ...]


def read_journals(places: Sequence[Path]) -> list[JournalAccount]:
    """Read the journals in folders and below them.

    Raises:
        JournalError: a folder has none, or one was altered.
    """
    return [read_journal(path, ()) for path in _list_journals(places)]


def verify_journals(places: Sequence[Path], heads: Sequence[str]) -> JournalsVerified:
    """Check that the journals in folders and below them are as they were written.

    Args:
        places: the folders.
        heads: first digits of hashes of last lines that somebody kept, in lower case.

    Raises:
        JournalError: a folder has none.
    """
    journals, altered = [], []
    for path in _list_journals(places):
        try:
            journals.append(read_journal(path, heads))
        except JournalError as error:
            altered.append(error)
    seen = {head for journal in journals for head in journal.heads}
    return JournalsVerified(tuple(journals), tuple(altered), tuple(head for head in heads if head not in seen))


def read_journal(path: Path, heads: Sequence[str]) -> JournalAccount:
    """Return what a journal says about its runs, and which of some heads its lines have.

    Raises:
        JournalError: there is none, it was altered, or its lines do not say what ours say.
    """
    with report_foreign(path):
        account = JournalAccount(path)
        batches: dict[int, list[bytes]] = {}
        for record in scan(path, _decode):
            if isinstance(record, Torn):
                account.torn = record.length
                break
            account.records, account.head = account.records + 1, record.hash
            account.heads.update(head for head in heads if record.hash.startswith(head))
            _count_record(account, record, batches)
        return account


def _decode(content: bytes) -> Any:  # noqa: ANN401 - as JSON has it
    """Return the fields of a line; of a batch that is announced only its ops, as bytes."""
    begun = _INTENT.match(content)
    if begun is None:
        return json.loads(content)
    number, previous, at, batch = begun.groups()
    fields = {"n": int(number), "prev": previous.decode(), "at": at.decode(), "event": "intent"}
    return {**fields, "batch": int(batch), "ops": _OP.findall(content, begun.end())}


def _count_record(account: JournalAccount, record: JournalLine, batches: dict[int, list[bytes]]) -> None:
    """Add a line to the run that it is of.

    Args:
        account: of the journal so far.
        record: the line.
        batches: ops of batches that were announced, and of which no result was read yet.
    """
    fields = record.fields
    if record.event in ("begin", "resume"):
        account.binding = fields.get("binding", {})
        approved = fields.get("approved", ())
        if isinstance(approved, Mapping):
            # As earlier versions wrote it: one person.
            approved = [approved]
        account.runs.append(JournalRun(record.at, fields.get("by", {}), fields.get("reason"), approved))
    if not account.runs:
        return
    run = account.runs[-1]
    run.until = record.at
    run.ended = _ENDS.get(record.event, run.ended)
    if record.event == "intent" and "ops" in fields:
        batches[fields["batch"]] = fields["ops"]
    elif record.event == "intent" and "writes" in fields:
        batches[fields["batch"]] = [str(row[1]).encode() for row in fields["writes"]]
    elif record.event == "intent":
        run.writes[str(fields["op"])] += 1
    elif record.event == "done" and "versions" in fields:
        ops, versions = batches.pop(fields["batch"], []), fields["versions"]
        written = (op for op, version in zip(ops, versions, strict=True) if version is not None)
        # Counted as bytes: a journal has millions of writes, and a handful of ops.
        run.writes.update({op.decode(): count for op, count in Counter(written).items()})
        run.conflicts += len(fields["conflicts"])
    elif record.event == "undoing":
        run.writes["taken back"] += len(fields["writes"])


def _list_journals(places: Sequence[Path]) -> list[Path]:
    paths: list[Path] = []
    for place in places:
        inside = sorted(place.rglob(JOURNAL)) if place.is_dir() else []
        if not inside:
            raise JournalError(str(place), "holds no journal", "name the folder that a command wrote its journal to")
        paths += inside
    return paths
