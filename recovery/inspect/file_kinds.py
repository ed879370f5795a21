"""What kind of file of a bookie or a store a file is, known by its first bytes and its name.

    kind               by its name                      by its first bytes
    index file         <hex>.idx, <hex>.idx.rloc        BKLE
    entry log          <hex>.log, and what compactions  BKLO
                       leave of one
    journal            <hex>.txn                        BKLG; none in version 1
    replay mark        lastMark, lastMark.<n>           none
    newest log id      lastId                           none
    cookie             VERSION                          a number, then bookieHost in layouts 4 and 5
    bookie status      BOOKIE_STATUS                    none
    dirty marker       DIRTY                            none: no bytes
    locations, ledgers a folder with a file CURRENT;    the length of its first key
                       of scopes with -scoped behind
    cached maps        the folder metadata-cache        none
    ledger metadata    any                              BookieMetadataFormatVersion
    ZooKeeper log      any                              ZKLG
    its snapshot       any; snapshot.<zxid>.gz,         ZKSN; of gzip and snappy
                       snapshot.<zxid>.snappy
    etcd's database    any; db, *.db                    at byte 16 the magic of a bbolt meta page

First bytes win over a name.

Source: docs/formats/bookie-storage.md.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import Final

from backends.zkfiles import snapshot, txnlog
from recovery.codecs import ledger_metadata
from recovery.errors import InputError

HEAD: Final = 1024
"""First bytes that a kind is known by."""
CURRENT: Final = "CURRENT"
"""The file that makes a folder a RocksDB."""
_SMALL: Final = re.compile(r"VERSION|lastMark(\.[0-9]+)?|lastId|BOOKIE_STATUS|DIRTY")
_LARGEST_SMALL: Final = 1 << 20
"""Bytes of a file of these names: the largest is the cookie, which lists folders."""
_COOKIE: Final = re.compile(rb"[0-9]{1,9}\n(bookieHost:|[^\x00-\x1f]+\n[^\x00-\x1f]+\n[0-9]+\t)")
_FOREIGN: Final = {
    b"PAR1": "a Parquet file; name the folder of the dataset to the command that reads it",
}


class FileKind(StrEnum):
    """What a file is; stored in --json, so never renamed."""

    INDEX = "index file"
    LOG = "entry log"
    JOURNAL = "journal"
    LAST_MARK = "replay mark"
    LAST_ID = "newest log id"
    COOKIE = "cookie"
    STATUS = "bookie status"
    DIRTY = "dirty marker"
    LOCATIONS = "locations database"
    LEDGERS = "ledgers database"
    CACHED_MAPS = "cached maps database"
    METADATA = "ledger metadata"
    ZK_SNAPSHOT = "ZooKeeper snapshot"
    ZK_LOG = "ZooKeeper transaction log"
    ETCD = "etcd database"


_NAMES: Final = (
    (FileKind.INDEX, re.compile(r"[0-9a-f]{1,16}\.idx(\.rloc)?")),
    (FileKind.LOG, re.compile(r"[0-9a-fA-F]{1,8}\.log(\.compacting|\.[0-9a-fA-F]{1,8}\.compacted)?")),
    (FileKind.JOURNAL, re.compile(r"[0-9a-f]{1,16}\.txn")),
    (FileKind.LAST_MARK, re.compile(r"lastMark(\.\d+)?")),
    (FileKind.LAST_ID, re.compile(r"lastId")),
    (FileKind.COOKIE, re.compile(r"VERSION")),
    (FileKind.STATUS, re.compile(r"BOOKIE_STATUS")),
    (FileKind.DIRTY, re.compile(r"DIRTY")),
    (FileKind.ZK_SNAPSHOT, snapshot.NAME),
)
_MAGICS: Final = (
    (FileKind.INDEX, re.compile(rb"BKLE")),
    (FileKind.LOG, re.compile(rb"BKLO")),
    (FileKind.JOURNAL, re.compile(rb"BKLG")),
    (FileKind.METADATA, re.compile(re.escape(ledger_metadata.MAGIC))),
    (FileKind.COOKIE, _COOKIE),
    (FileKind.ZK_SNAPSHOT, re.compile(re.escape(snapshot.MAGIC))),
    (FileKind.ZK_LOG, re.compile(re.escape(txnlog.MAGIC))),
    (FileKind.ETCD, re.compile(rb"(?s:.{16})\xed\xda\x0c\xed")),
)


def is_too_large(path: Path, size: int) -> bool:
    """Tell whether a file is larger than its name allows; it need not be read then, which may never end."""
    return size > _LARGEST_SMALL and _SMALL.fullmatch(path.name) is not None


def kind_of(path: Path, head: bytes) -> tuple[FileKind, list[str]]:
    """Tell what a file is by its first `HEAD` bytes and its name, and what is odd about its name.

    Raises:
        InputError: it is nothing that is known.
    """
    named = next((kind for kind, pattern in _NAMES if pattern.fullmatch(path.name)), None)
    marked = next((kind for kind, pattern in _MAGICS if pattern.match(head)), None)
    if marked is not None:
        odd = named is not None and named is not marked
        return marked, [f"its name is that of another kind: {named}"] if odd else []
    for magic, description in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(str(path), f"is {description}", "name a file of a bookie")
    if named is not None and named not in (FileKind.INDEX, FileKind.LOG, FileKind.COOKIE):
        return named, []
    if (path.parent / CURRENT).is_file() and named in (None, FileKind.LOG):
        raise InputError(str(path), "is one file of a RocksDB", f"name its folder: {path.parent}")
    if named is not None:
        return named, []
    problem = "has neither the name nor the first bytes of any file of a bookie"
    raise InputError(str(path), problem, "give it the name that it had on the bookie")
