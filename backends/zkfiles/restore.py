"""The state of a server at a point in time: the newest snapshot that serves, and the transactions after it.

A snapshot serves if its seals are right and the logs reach the last zxid that it contains anything of. If no snapshot
does, the existing files are shown with their gaps: a snapshot that transactions overlapped with, one that is cut off,
or what the logs alone made.

Source: docs/formats/zookeeper-files.md.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from backends.zkfiles import snapshot
from backends.zkfiles.records import MalformedError
from backends.zkfiles.servers import Entries, History
from backends.zkfiles.snapshot import Snapshot
from backends.zkfiles.tree import Tree
from backends.zkfiles.txnlog import Payloads


@dataclass(slots=True)
class Restored:
    """A state, and its sources.

    Attributes:
        tree: the state.
        txn: the last zxid in it; None: nothing was ever written.
        at_ms: when that was; None: not known.
        source: the snapshot that was used; None: none.
        fuzzy_end: the last zxid that anything of `source` is from.
        applied: transactions applied.
        digests: after how many of them the digest of the tree was compared.
        wrong: number of wrong digests.
        gaps: missing or doubtful parts.
        notes: for people.
    """

    tree: Tree
    txn: int | None
    at_ms: int | None
    source: Path | None
    fuzzy_end: int
    applied: int = 0
    digests: int = 0
    wrong: int = 0
    gaps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class NothingToShowError(Exception):
    """No state at or before the wanted zxid can be made of the files."""


def restore(snapshots: Sequence[Path], history: History, until: int | None) -> Restored:
    """Return the state after a zxid, or the newest one.

    Args:
        snapshots: by zxid, ascending.
        history: the transactions.
        until: the last zxid to be in it; None: all.

    Raises:
        NothingToShowError: the files do not show it.
    """
    notes: list[str] = []
    mixed: list[Path] = []
    damaged: list[tuple[int, Path]] = []
    later: list[tuple[int, Path]] = []
    restored: Restored | None = None
    read: Snapshot | None = None
    for path in reversed(snapshots):
        begun = snapshot.zxid_of(path.name)
        if until is not None and begun is not None and begun > until:
            continue
        read = None  # two are never held at once
        read = _read(path, notes)
        if read is None or read.damage is not None:
            later.append((begun or 0, path))
            if read is not None and read.nodes:
                damaged.append((read.nodes, path))
            continue
        # All at once: what it ends at, and the digest if there is anything to compare it with.
        read.look(digest=read.digest is not None or len(history.rows) > 0)
        if until is not None and read.ends > until:
            notes.append(f"{path} is not used: it has effects up to {read.ends:#x}")
            continue
        rows = _select_after(history, read.begun, until)
        reached = int(rows["zxid"][-1]) if len(rows) else read.begun
        if reached is None or reached < read.ends:
            notes.append(f"{path} is not used: it has effects up to {read.ends:#x}, and the logs do not go on to that")
            later.append((read.ends, path))
            mixed.append(path)
            continue
        restored = _replay(read, history, until, notes)
        break
    if restored is None and _from_the_start(history):
        restored = _replay(None, history, until, notes)
    if restored is None:
        return _makeshift(mixed, damaged, history, until, notes)
    zxid, path = max(later, default=(0, Path()))
    if zxid > (restored.txn or 0):
        gap = f"{path} is of a later state, up to zxid {zxid:#x}, and cannot be used"
        restored.gaps.append(f"{gap}: what came after {restored.txn or 0:#x} is not here")
    return restored


def _read(path: Path, notes: list[str]) -> Snapshot | None:
    try:
        restored = snapshot.read(path)
    except OSError as error:
        problem = "it is a symbolic link, which is not followed" if error.errno == errno.ELOOP else error.strerror
        notes.append(f"{path} is not read ({problem})")
        return None
    notes += restored.notes
    if restored.damage is not None:
        notes.append(f"{restored.damage}; not used")
    return restored


def _select_after(history: History, begun: int | None, until: int | None) -> Entries:
    """Return the rows that go on from a snapshot without a break."""
    if begun is None:
        return history.rows[:0]
    zxids = history.rows["zxid"]
    low = int(np.searchsorted(zxids, begun, "right"))
    high = len(zxids) if until is None else int(np.searchsorted(zxids, until, "right"))
    if low >= high or not (history.goes_on(begun, low) or _same_epoch_start(begun, int(zxids[low]))):
        return history.rows[:0]
    later = history.breaks[(history.breaks > low) & (history.breaks < high)]
    return history.rows[low : int(later[0]) if len(later) else high]


def _same_epoch_start(begun: int, following: int) -> bool:
    """A server that never ran has the zxid 0, whatever the epoch of its first record."""
    return begun == 0 and following & 0xFFFF_FFFF == 1


def _from_the_start(history: History) -> bool:
    return len(history.rows) > 0 and int(history.rows["zxid"][0]) & 0xFFFF_FFFF == 1


def _makeshift(
    mixed: list[Path], damaged: list[tuple[int, Path]], history: History, until: int | None, notes: list[str]
) -> Restored:
    """Return the possible states if no snapshot serves, the best first."""
    for path in mixed:
        image = _read(path, [])
        if image is not None and image.damage is None:
            gap = (
                f"{path} was written while transactions up to {image.ends:#x} were applied, and the logs of those are "
                "not here: it has a part of them"
            )
            restored = _replay(image, history, until, notes)
            restored.gaps.insert(0, gap)
            return restored
    for _, path in sorted(damaged, reverse=True):
        image = _read(path, [])
        if image is not None and image.nodes:
            restored = _replay(image, history, until, notes)
            restored.gaps.insert(0, f"{image.damage}; only the {image.nodes} nodes before that are shown, unproven")
            return restored
    if len(history.rows) and (until is None or int(history.rows["zxid"][0]) <= until):
        restored = _replay(None, history, until, notes, loose=True)
        gap = f"no snapshot goes before {history.place(0)}: only changes of the logs from there on are shown"
        restored.gaps.insert(0, gap)
        return restored
    raise NothingToShowError("; ".join(notes) or "there is neither a snapshot nor a log that begins before it")


def _replay(
    base: Snapshot | None, history: History, until: int | None, notes: list[str], *, loose: bool = False
) -> Restored:
    if base is None:
        rows = history.rows if until is None else history.rows[history.rows["zxid"] <= until]
        rows = rows[: int(history.breaks[0])] if len(history.breaks) else rows
    else:
        rows = _select_after(history, base.begun, until)
    digest = len(rows) > 0 or (base is not None and base.digest is not None)
    tree = Tree(base, digest=digest, loose=loose)
    begun = (base.begun or 0) if base is not None else 0
    ends = base.ends if base is not None else 0
    restored = Restored(tree, begun or None, None, base.path if base else None, ends, notes=notes)
    if base is not None:
        _set_known(restored, base, history)
    checks = dict([base.digest]) if base is not None and base.digest is not None else {}
    if begun >= ends:
        # Else it has a part of what came later, even where its last sections name only what it is called after.
        _compare(restored, checks.get(begun), f"{restored.source}")
    payloads = Payloads()
    try:
        _apply(restored, history, rows, checks, payloads, comparable=not loose)
    finally:
        payloads.close()
    _end(restored, history, until)
    _unknown(restored, base)
    return restored


def _set_known(restored: Restored, base: Snapshot, history: History) -> None:
    """Set the point in time from a snapshot alone."""
    if base.begun is None:
        restored.txn = base.ends or None
        restored.gaps.append(
            f"{base.path} does not say in its name when it was begun: it may have a part of the last ones"
        )
    restored.at_ms = base.look(digest=False).ms or None
    zxids = history.rows["zxid"]
    row = int(np.searchsorted(zxids, restored.txn or 0))
    if row < len(zxids) and int(zxids[row]) == restored.txn:
        restored.at_ms = int(history.rows["ms"][row])


def _compare(restored: Restored, digest: int | None, where: str) -> None:
    if digest is not None and restored.tree.digest != digest:
        restored.wrong += 1
        if restored.wrong == 1:
            restored.gaps.append(f"the digest of the tree after {where} is not the one that the server had")


def _apply(
    restored: Restored, history: History, rows: Entries, checks: dict[int, int], payloads: Payloads, *, comparable: bool
) -> None:
    begun = restored.tree.base.begun or 0
    columns = (rows[name].tolist() for name in ("zxid", "log", "at", "size", "crc"))
    for zxid, log, position, size, crc in zip(*columns, strict=True):
        path = history.logs[log].path
        try:
            transaction = payloads.transaction(path, position, size, crc)
        except (MalformedError, OSError) as error:
            problem = error.problem if isinstance(error, MalformedError) else error.strerror
            restored.gaps.append(f"{path} at byte {position}: {problem}; nothing from there on is shown")
            return
        restored.tree.apply(transaction)
        restored.txn, restored.at_ms = zxid, transaction.at_ms
        restored.applied += 1
        if not comparable:
            continue
        if zxid >= restored.fuzzy_end and transaction.digest is not None:
            restored.digests += 1
            _compare(restored, transaction.digest, f"{path} at byte {position}, zxid {zxid:#x},")
        if zxid in checks and zxid > begun:
            _compare(restored, checks[zxid], f"zxid {zxid:#x}, by the snapshot,")


def _end(restored: Restored, history: History, until: int | None) -> None:
    """Report the missing transactions after the last applied one."""
    txn = restored.txn or 0
    if until is not None and txn >= until:
        return
    zxids = history.rows["zxid"]
    row = int(np.searchsorted(zxids, txn, "right"))
    if row < len(zxids):
        if not (history.goes_on(txn, row) or _same_epoch_start(txn, int(zxids[row]))):
            restored.gaps.append(
                f"after zxid {txn:#x} comes {int(zxids[row]):#x} ({history.place(row)}): "
                "the transactions between are missing"
            )
    elif until is not None:
        restored.gaps.append(f"zxid {until:#x} was not reached: the files end at {txn:#x}")
    unread = [log for log in history.logs if log.damage is not None and (log.last is None or log.last >= txn)]
    restored.gaps += [f"{log.damage}: what it had after zxid {txn:#x} is not here" for log in unread]


def _unknown(restored: Restored, base: Snapshot | None) -> None:
    """Report nodes that cannot be shown whole."""
    tree = restored.tree
    if base is not None:
        survey = base.look(digest=False)
        rows = survey.unknown_acls[~tree.hidden[survey.unknown_acls]]
        if len(rows):
            name = base.path_at(int(rows[0])).decode("utf-8", "backslashreplace") or "/"
            restored.gaps.append(
                f"{base.path} at byte {int(base.rows[int(rows[0])])}: the ACLs of {len(rows)} nodes are not in it, "
                f"{name} the first one"
            )
        rows = survey.not_text[~tree.hidden[survey.not_text]]
        restored.gaps += [
            f"{base.path} at byte {int(base.rows[int(row)])}: a path that is not text; not shown" for row in rows[:20]
        ]
    lost = [path for path, node in tree.changed.items() if node.acl is None]
    if lost:
        restored.gaps.append(
            f"the ACLs of {len(lost)} nodes are not known, {lost[0].decode('utf-8', 'backslashreplace')}"
        )
    odd = sum(not snapshot.is_text(path) for path in tree.changed)
    if odd:
        restored.gaps.append(f"{odd} nodes have paths that are not text; not shown")
