"""A bookie's folders: which were given, what is in each, which bookie they belong to, and which are missing.

Folders may be given with or without their `current/`. What a folder is for is seen by what is in it:

    in the folder                          role
    hex id.txn                             journal
    hex id.log, lastMark*, lastId, DIRTY   ledger
    hex folders (.idx files below)         index; of eight digits: of ledgers of scopes
    locations/, ledgers/ with CURRENT      index (Db storage); with -scoped behind: of ledgers of scopes

Their order and number are the cookie's (`VERSION`), which every folder holds; a given folder is taken for the named one
with the same path, else for the one that shares the most trailing parts of the path, else for the next one left.

Source: docs/formats/bookie-storage.md.
"""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import combinations, takewhile
from pathlib import Path
from typing import Final

from backends.files import read_bounded
from recovery.codecs import cookie as cookie_codec
from recovery.codecs.cookie import Cookie
from recovery.codecs.entry_log import log_id_of
from recovery.codecs.journal import journal_id_of
from recovery.collect.rows.bookies import VersionFile
from recovery.collect.rows.damage import Hides, UnreadPiece
from recovery.errors import FormatError, InputError, Reason
from recovery.model.ids import is_bookie_id, to_signed

_CURRENT: Final = "current"
_VERSION: Final = "VERSION"
_LARGEST_VERSION: Final = 1 << 20
"""It lists folders: no bookie has a thousand, and no path more than 4 kB."""
_LARGEST_IDENTITY: Final = 4 << 10
"""RocksDB writes 36 characters."""
_DIRTY: Final = "DIRTY"
_DATABASES: Final = ("ledgers", "locations")
_SCOPED: Final = "-scoped"
"""The same for ledgers of scopes: made with the first ledger of a scope, so they show no incarnation."""
_LEDGER_FILES: Final = re.compile(r"lastMark(\.\d+)?|lastId|DIRTY|BOOKIE_STATUS")
_HEX: Final = re.compile(r"[0-9a-f]{1,2}|[0-9a-f]{8}")
_NUMBER: Final = re.compile(r"[0-9a-f]{1,32}", re.IGNORECASE)
_INDEX_FILE: Final = re.compile(rf"({_NUMBER.pattern})\.idx(\.rloc)?", re.IGNORECASE)
_LEFTOVERS: Final = re.compile(
    r"(locations\.BACKUP|ledgers\.PREV|ledgers\.TEMP)-.*|metadata-cache|upgradeTmp\.\d+|lost\+found|\..*"
)
"""Folders and files that belong there and are not read."""
_COMPACTION: Final = re.compile(r"[0-9a-f]+\.log\.(compacting|[0-9a-f]+\.compacted)")


class FolderRole(StrEnum):
    """The purpose of a folder; values are stored."""

    LEDGER = "ledger"
    INDEX = "index"
    JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder that holds files of a bookie.

    Attributes:
        path: of its files (`current/` where there is one).
        given: the path as it was given.
        roles: by its content and by the option that named it.
        databases: it holds RocksDB folders.
        readable: the system let us list it.
        version: content of its `VERSION`; None if there is none.
        dirty: a DIRTY file is there.
        first_journal: the lowest id of its journals.
    """

    path: Path
    given: Path
    roles: frozenset[FolderRole]
    databases: bool
    readable: bool
    version: bytes | None
    dirty: bool = False
    first_journal: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A folder in one of its roles.

    Attributes:
        role: its purpose.
        folder: None: the cookie names it, and it was not given.
        number: its place in the cookie's list; None: the cookie does not name it.
        name: its path in the cookie, else as given.
    """

    role: FolderRole
    folder: Folder | None
    number: int | None
    name: str


@dataclass(frozen=True, slots=True)
class Disks:
    """All folders that were given of one bookie, and its id.

    Attributes:
        bookie: its id.
        incarnation: the same number for the same disks, also after they were copied; see `docs/formats/inventory.md`.
        evidence: (kind, value) pairs that tell this life of the bookie from an earlier or a later one.
        instance_id: of its cluster; None: the cookie names none, or cookies disagree.
        cookie: parsed `VERSION`; None without a readable one.
        cookie_bytes: bytes of that file; made again if a statement corrects it and no file has both ids.
        places: every folder in every role, the missing ones of the cookie too; in the cookie's order.
        version_files: of the folders.
        dirty: a DIRTY file says that the bookie runs or was killed; None: no such file, and the bookie may be older
            than 4.15, which made none.
        complete: every folder that the cookie names was given, readable, and holds the cookie.
        damage: of the folders themselves.
        disputed: fields in which cookies disagree and that no statement settles: `bookie`, `instance`.
    """

    bookie: str
    incarnation: int
    evidence: tuple[tuple[str, str], ...]
    instance_id: str | None
    cookie: Cookie | None
    cookie_bytes: bytes | None
    places: tuple[Place, ...]
    version_files: tuple[VersionFile, ...]
    dirty: bool | None
    complete: bool
    damage: tuple[UnreadPiece, ...]
    disputed: tuple[str, ...] = ()

    def list_places(self, role: FolderRole) -> list[Place]:
        """Return the existing folders of a role, numbered ones first, in their order."""
        places = [p for p in self.places if p.role is role and p.folder is not None and p.folder.readable]
        return sorted(places, key=lambda p: (p.number is None, p.number or 0))


_DIRTY_SINCE_LAYOUT: Final = 5
"""Cookie layout of 4.16; DIRTY is written from 4.15 on."""


@dataclass(frozen=True, slots=True)
class Statements:
    """The facts of a bookie beside its folders and its id.

    Attributes:
        instance_id: of its cluster, which a person states; it settles which of two cookies is right.
        configured_id: the bookie's id in its configuration; a cookie that names another id counts before it.
        may_lack: folders that are not there are reported as missing, if another one is; else they are refused.
    """

    instance_id: str | None = None
    configured_id: str | None = None
    may_lack: bool = False


_NO_STATEMENTS: Final = Statements()


def survey(
    ledger_dirs: Sequence[Path],
    index_dirs: Sequence[Path],
    journal_dirs: Sequence[Path],
    bookie_id: str | None,
    statements: Statements = _NO_STATEMENTS,
) -> Disks:
    """List the folders of one bookie, without reading any data.

    Cookies that name different bookies or clusters are damage that hides everything, until a statement settles it: the
    bookie is then the one that most of them name, and its cluster is not known. Two cases are refused, because the
    folders belong to two bookies: no list is long enough for all folders, even with a stated bookie; or two lists have
    no folder in common, and no bookie is stated.

    Raises:
        InputError: a folder does not exist, two are of different bookies, no cookie names the stated bookie, or nothing
            names the bookie of the folders.
    """
    given = [(FolderRole.LEDGER, p) for p in ledger_dirs]
    given += [(FolderRole.INDEX, p) for p in index_dirs]
    given += [(FolderRole.JOURNAL, p) for p in journal_dirs]
    damage: list[UnreadPiece] = []
    folders, gone = _look_at_folders(given, damage, may_lack=statements.may_lack)
    for stated in (bookie_id, statements.configured_id):
        if stated is not None and not is_bookie_id(stated):
            problem = "is not a bookie id: use letters, digits and . - _ :, without slash or space"
            raise InputError(repr(stated), problem, "name the bookie as ledger metadata does (host:port)")
    read = _read_cookies(folders, damage)
    _refuse_two_bookies(folders, read, bookie_id, statements.instance_id)
    disputed: list[str] = []
    bookie = _choose_bookie(folders, read, bookie_id, statements.configured_id, damage, disputed)
    instance_id = _choose_instance(read, statements.instance_id, damage, disputed)
    cookie, raw = _choose_cookie(read, bookie, instance_id, damage)
    places = _match_places(folders, cookie, damage)
    places += _report_gone(gone, places, damage)
    dirty = True if any(folder.dirty for folder in folders) else None
    if dirty is None and cookie is not None and cookie.layout_version >= _DIRTY_SINCE_LAYOUT:
        dirty = False
    evidence = _gather_evidence(bookie, instance_id, raw, folders)
    complete = cookie is not None and all(
        p.folder is not None and p.folder.readable and p.folder.version is not None
        for p in places
        if p.number is not None
    )
    return Disks(
        bookie,
        hash_incarnation(evidence),
        evidence,
        instance_id,
        cookie,
        raw,
        places,
        tuple(_version_file(f.path / _VERSION) for f in folders if f.version is not None),
        dirty,
        complete and not any(d.hides is Hides.EVERYTHING for d in damage),
        tuple(damage),
        tuple(disputed),
    )


def list_folders_in(path: Path) -> list[Path]:
    """Return a bookie's folder itself, or the bookie's folders that are in it.

    Raises:
        InputError: there is no such folder, or it cannot be listed.
    """
    if not path.is_dir():
        problem = "is not a folder" if path.exists() else "no such folder"
        raise InputError(str(path), problem, "mount it, or leave it out: its bookie is then not collected")

    def is_one(folder: Path) -> bool:
        return (folder / _CURRENT).is_dir() or (folder / _VERSION).is_file()

    try:
        if is_one(path):
            return [path]
        inside = sorted(folder for folder in path.iterdir() if folder.is_dir() and is_one(folder))
    except OSError as error:
        raise InputError(str(path), f"cannot be listed ({error.strerror})", "fix the rights") from error
    return inside or [path]


@dataclass(frozen=True, slots=True)
class _Gone:
    """A folder that was named and does not exist, or cannot be read."""

    role: FolderRole
    path: Path
    problem: str


def _look_at_folders(
    given: Sequence[tuple[FolderRole, Path]], damage: list[UnreadPiece], *, may_lack: bool
) -> tuple[list[Folder], list[_Gone]]:
    folders: dict[tuple[int, int], Folder] = {}
    gone: list[_Gone] = []
    first_error: InputError | None = None
    for role, path in given:
        try:
            current, status = _find_current(path)
        except InputError as error:
            if not may_lack:
                raise
            first_error = first_error or error
            gone.append(_Gone(role, path, error.problem))
            continue
        key = (status.st_dev, status.st_ino)
        if key in folders:
            folders[key] = replace(folders[key], roles=folders[key].roles | {role})
            continue
        try:
            with os.scandir(current) as listing:
                entries = [(e.name, e.is_dir()) for e in listing]
        except OSError as error:
            damage.append(
                UnreadPiece(
                    str(current), Reason.UNREADABLE, Hides.EVERYTHING, detail=error.strerror or "cannot be listed"
                )
            )
            folders[key] = Folder(current, path, frozenset({role}), databases=False, readable=False, version=None)
            continue
        databases = any(is_dir and n in _DATABASES and (current / n / "CURRENT").exists() for n, is_dir in entries)
        roles = {role} | {r for n, is_dir in entries if (r := _role_of(n, is_dir=is_dir)) is not None}
        if databases:
            roles.add(FolderRole.INDEX)
        version = _read_version(current, damage)
        journals = [i for name, _ in entries if (i := journal_id_of(name)) is not None]
        dirty = any(name == _DIRTY for name, _ in entries)
        folders[key] = Folder(
            current,
            path,
            frozenset(roles),
            databases,
            readable=True,
            version=version,
            dirty=dirty,
            first_journal=min(journals, default=None),
        )
        damage += [
            describe_stray(str(current / name), name, is_dir=is_dir)
            for name, is_dir in entries
            if not _is_known(name, is_dir=is_dir)
        ]
    if not folders and first_error is not None:
        raise first_error
    return list(folders.values()), gone


def _report_gone(gone: Sequence[_Gone], places: Sequence[Place], damage: list[UnreadPiece]) -> tuple[Place, ...]:
    """Return the places of missing folders, except those that the cookie already has as missing."""
    known = {(place.role, _split_path(Path(place.name))) for place in places if place.folder is None}
    added = [folder for folder in gone if (folder.role, _split_path(folder.path)) not in known]
    for folder in added:
        detail = f"{folder.role} folder of the bookie's configuration: {folder.problem}"
        damage.append(UnreadPiece(str(folder.path), Reason.MISSING, Hides.EVERYTHING, detail=detail))
    return tuple(Place(folder.role, None, None, str(folder.path)) for folder in added)


def _find_current(path: Path) -> tuple[Path, os.stat_result]:
    """Return the folder with the files of a given folder (`current` or itself), and its status."""
    remedy = "mount it, or name the other folders without it: it is then reported as missing"
    try:
        if not path.is_dir():
            problem = "is not a folder" if path.exists() else "no such folder"
            raise InputError(str(path), problem, remedy)
        folder = path / _CURRENT if (path / _CURRENT).is_dir() else path
        return folder, folder.stat()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}", remedy) from error


def _role_of(name: str, *, is_dir: bool) -> FolderRole | None:
    if is_dir:
        return FolderRole.INDEX if _HEX.fullmatch(name) else None
    if journal_id_of(name) is not None:
        return FolderRole.JOURNAL
    return FolderRole.LEDGER if log_id_of(name) is not None or _LEDGER_FILES.fullmatch(name) else None


def _is_known(name: str, *, is_dir: bool) -> bool:
    if _LEFTOVERS.fullmatch(name):
        return True
    if is_dir:
        return name.removesuffix(_SCOPED) in _DATABASES or bool(_HEX.fullmatch(name))
    return name == _VERSION or bool(_COMPACTION.fullmatch(name)) or _role_of(name, is_dir=False) is not None


def describe_stray(path: str, name: str, *, is_dir: bool) -> UnreadPiece:
    """Return the damage of a file or folder that does not belong at its place.

    An index file that the bookie does not find may belong to a ledger that it had, whatever its name says. So each
    folder with a number as its name is searched for index files.
    """
    files: Iterable[str] = (path,)
    if is_dir:
        files = (
            (f"{folder}/{file}" for folder, _, names in os.walk(path) for file in names)
            if _NUMBER.fullmatch(name)
            else ()
        )
    index = next((file for file in files if _INDEX_FILE.fullmatch(file.rpartition("/")[2])), None)
    if index is None:
        return UnreadPiece(path, Reason.UNKNOWN_FILE, Hides.NOTHING)
    detail = "the bookie does not look for it here" if index == path else f"{index}: the bookie does not look there"
    return UnreadPiece(path, Reason.MISPLACED, Hides.UNLISTED, detail=detail)


def _read_version(folder: Path, damage: list[UnreadPiece]) -> bytes | None:
    try:
        return read_bounded(folder / _VERSION, _LARGEST_VERSION)
    except FileNotFoundError:
        detail = "nothing shows that the folder belongs to this bookie"
        damage.append(UnreadPiece(str(folder / _VERSION), Reason.MISSING, Hides.NOTHING, detail=detail))
    except OSError as error:
        detail = error.strerror or "cannot be read"
        damage.append(UnreadPiece(str(folder / _VERSION), Reason.UNREADABLE, Hides.NOTHING, detail=detail))
    return None


_Read = tuple[str, Cookie, bytes]
"""A cookie: its file, its content, its bytes."""


def _read_cookies(folders: Sequence[Folder], damage: list[UnreadPiece]) -> list[_Read]:
    read: list[_Read] = []
    for folder in folders:
        if folder.version is None:
            continue
        file = str(folder.path / _VERSION)
        try:
            read.append((file, cookie_codec.decode(folder.version), folder.version))
        except FormatError as error:
            damage.append(UnreadPiece(file, error.reason, Hides.EVERYTHING, error.offset, detail=error.detail))
    return read


def _refuse_two_bookies(
    folders: Sequence[Folder], read: Sequence[_Read], bookie_id: str | None, instance_id: str | None
) -> None:
    """Refuse folders of two bookies: entries of one would count as copies on the other."""
    holders = [folder for folder in folders if folder.version is not None]
    is_crowded = not any(_has_room(cookie, holders) for _, cookie, _ in read)
    for (file, first_cookie, _), (other_file, other, _) in combinations(read, 2):
        for subject, first, second, stated in (
            ("bookie", first_cookie.bookie_id, other.bookie_id, bookie_id),
            ("cluster instance", first_cookie.instance_id, other.instance_id, instance_id),
        ):
            if first == second or None in (first, second):
                continue
            problem = f"name different ones of a {subject}: {first} and {second}"
            remedy = "give the folders of one bookie at a time"
            if is_crowded:
                problem += ", and no list of folders in a VERSION file has a place for all folders that were given"
                raise InputError(f"{file} and {other_file}", problem, remedy)
            if stated is None and not set(_list_named(first_cookie)) & set(_list_named(other)):
                remedy += f"; if they are of one bookie, name the right {subject}"
                raise InputError(f"{file} and {other_file}", problem, remedy)


def _has_room(cookie: Cookie, folders: Sequence[Folder]) -> bool:
    """Whether a cookie's list is long enough for these folders: for all of them, and for those of each role."""
    named = _list_named(cookie)
    return len(folders) <= len({name for _, name in named}) and all(
        sum(folder.roles - {FolderRole.INDEX} == {role} for folder in folders) <= sum(of is role for of, _ in named)
        for role in (FolderRole.LEDGER, FolderRole.JOURNAL)
    )


def _choose_bookie(
    folders: Sequence[Folder],
    read: Sequence[_Read],
    stated: str | None,
    configured: str | None,
    damage: list[UnreadPiece],
    disputed: list[str],
) -> str:
    """Return the stated bookie; else the configured one, if a cookie names it; else the one that most cookies name."""
    named = Counter(cookie.bookie_id for _, cookie, _ in read)
    if not named:
        if (bookie := stated or configured) is not None:
            return bookie
        where = ", ".join(str(f.given) for f in folders) or "no folder"
        problem = "no VERSION file that can be read names the bookie of these folders"
        raise InputError(where, problem, "name the bookie as ledger metadata does (host:port)")
    if stated is not None and stated not in named:
        problem = f"is not the bookie of these folders: their VERSION says {' and '.join(sorted(named))}"
        raise InputError(stated, problem, "leave the option out, or name the folders of that bookie")
    settles = stated or (configured if configured in named else None)
    bookie = settles or named.most_common(1)[0][0]
    if settles is None and len(named) > 1:
        disputed.append("bookie")
    damage += [
        UnreadPiece(
            file,
            Reason.CONFLICT,
            Hides.EVERYTHING if settles is None else Hides.NOTHING,
            detail=f"names bookie {cookie.bookie_id}, and {named[bookie]} of {len(read)} VERSION files name {bookie}",
        )
        for file, cookie, _ in read
        if cookie.bookie_id != bookie
    ]
    if configured is not None and configured not in named:
        detail = f"names bookie {bookie}, and the bookie's configuration names {configured}"
        damage.append(UnreadPiece(read[0][0], Reason.CONFLICT, Hides.NOTHING, detail=detail))
    return bookie


def _choose_instance(
    read: Sequence[_Read], stated: str | None, damage: list[UnreadPiece], disputed: list[str]
) -> str | None:
    """Return the stated cluster instance; else the one that all cookies name; None where they disagree."""
    named = [(file, cookie.instance_id) for file, cookie, _ in read if cookie.instance_id is not None]
    if stated is None and len({instance for _, instance in named}) <= 1:
        return named[0][1] if named else None
    if stated is None:
        disputed.append("instance")
    right, hides = ("this cluster is", Hides.NOTHING) if stated else (f"{named[0][0]} names", Hides.EVERYTHING)
    damage += [
        UnreadPiece(file, Reason.CONFLICT, hides, detail=f"names cluster instance {instance}, and {right} {wanted}")
        for wanted in (stated or named[0][1],)
        for file, instance in named
        if instance != wanted
    ]
    return stated


def _choose_cookie(
    read: Sequence[_Read], bookie: str, instance_id: str | None, damage: list[UnreadPiece]
) -> tuple[Cookie | None, bytes | None]:
    """Return the bookie's cookie; of several the one with the longest lists, corrected where none names the cluster."""
    if not read:
        return None, None
    own = [row for row in read if row[1].bookie_id == bookie]
    fitting = [row for row in own if instance_id is None or row[1].instance_id in (None, instance_id)]
    file, cookie, raw = max(fitting or own, key=lambda row: len(_list_named(row[1])))
    if not fitting:
        cookie = replace(cookie, instance_id=instance_id)
        raw = cookie_codec.encode(cookie)
    damage += [
        UnreadPiece(other_file, Reason.CONFLICT, Hides.EVERYTHING, detail=f"lists other folders than {file}")
        for other_file, other, _ in read
        if _list_named(other) != _list_named(cookie)
    ]
    return cookie, raw


def _list_named(cookie: Cookie) -> list[tuple[FolderRole, str]]:
    """The folders that a cookie names; index folders are the ledger folders where it names none."""
    return [
        *((FolderRole.JOURNAL, n) for n in cookie.journal_dirs),
        *((FolderRole.LEDGER, n) for n in cookie.ledger_dirs),
        *((FolderRole.INDEX, n) for n in cookie.index_dirs or cookie.ledger_dirs),
    ]


def _match_places(folders: Sequence[Folder], cookie: Cookie | None, damage: list[UnreadPiece]) -> tuple[Place, ...]:
    # Without index folders of its own a bookie keeps its index in the ledger folders, also while there is none yet.
    shared = cookie is not None and not cookie.index_dirs
    places: list[Place] = []
    for role in FolderRole:
        fit = [
            role in f.roles or (shared and role is FolderRole.INDEX and FolderRole.LEDGER in f.roles) for f in folders
        ]
        names = [n for r, n in _list_named(cookie) if r is role] if cookie else []
        match = match_names(names, [f.given for f in folders], fit)
        for number, (name, position) in enumerate(zip(names, match, strict=True)):
            places.append(Place(role, None if position is None else folders[position], number, name))
            if position is None:
                detail = f"{role} folder of the cookie; {len(names) - match.count(None)} of {len(names)} were given"
                damage.append(UnreadPiece(name, Reason.MISSING, Hides.EVERYTHING, detail=detail))
        places += [Place(role, f, None, str(f.given)) for at, f in enumerate(folders) if fit[at] and at not in match]
    return tuple(places)


def match_names(names: Sequence[str], given: Sequence[Path], fit: Sequence[bool]) -> list[int | None]:
    """Return the given folder for each folder that a cookie names; None where none is left.

    Equal paths are taken first, then the pairs that share the most trailing parts; where that does not decide, the
    order does.

    Args:
        names: of one role, as the cookie has them.
        given: all folders.
        fit: for each of them, whether it is of that role; the others are taken only if their path is equal.
    """
    given_parts = [_split_path(p) for p in given]
    parts = [_split_path(Path(n)) for n in names]
    matches: list[int | None] = [given_parts.index(p) if p in given_parts else None for p in parts]
    score = {(n, g): _count_shared(p, t) for n, p in enumerate(parts) for g, t in enumerate(given_parts) if fit[g]}
    for (n, g), worth in sorted(score.items(), key=lambda item: (-item[1], item[0])):
        rivals = [
            w for (n2, g2), w in score.items() if (n2 == n) != (g2 == g) and matches[n2] is None and g2 not in matches
        ]
        if matches[n] is None and g not in matches and worth and all(w < worth for w in rivals):
            matches[n] = g
    rest = (g for g in range(len(given)) if fit[g] and g not in matches)
    return [next(rest, None) if match is None else match for match in matches]


def _count_shared(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    pairs = zip(reversed(first), reversed(second), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _split_path(path: Path) -> tuple[str, ...]:
    parts = Path(os.path.normpath(path)).parts
    return parts[:-1] if parts[-1:] == (_CURRENT,) else parts


def _gather_evidence(
    bookie: str, instance_id: str | None, raw: bytes | None, folders: Sequence[Folder]
) -> tuple[tuple[str, str], ...]:
    evidence = [("bookie", bookie)]
    if instance_id is not None:
        evidence.append(("instance", instance_id))
    if raw is not None:
        evidence.append(("version_sha256", hashlib.sha256(raw).hexdigest()))
    for folder in folders:
        for name in _DATABASES:
            try:
                raw = read_bounded(folder.path / name / "IDENTITY", _LARGEST_IDENTITY)
                text = raw.decode("ascii", "replace").strip()
            except OSError:
                continue
            evidence.append((f"rocksdb_{name}", text))
        if folder.first_journal is not None:
            evidence.append(("journal_first", f"{folder.first_journal:x}"))
    return tuple(sorted(evidence))


_LASTING: Final = ("bookie", "instance", "rocksdb_ledgers", "rocksdb_locations")
"""Evidence that neither a copy of the disks nor the daily trimming of journals changes."""


def hash_incarnation(evidence: Sequence[tuple[str, str]]) -> int:
    """Return the number of a bookie's incarnation, from evidence that lasts."""
    lasting = "\n".join(f"{kind}={value}" for kind, value in evidence if kind in _LASTING)
    return to_signed(int.from_bytes(hashlib.sha256(lasting.encode()).digest()[:8]))


def _version_file(path: Path) -> VersionFile:
    status = path.stat()
    born: float | None = getattr(status, "st_birthtime", None)
    return VersionFile(
        str(path),
        status.st_ino,
        None if born is None else datetime.fromtimestamp(born, UTC),
        datetime.fromtimestamp(status.st_mtime, UTC),
    )
