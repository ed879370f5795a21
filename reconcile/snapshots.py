"""What a store held earlier, named as it lies on a disk: what it is, its bytes say.

    given                                                  is taken as
    a URI, backup:PLACE, or the folder of a capture        that
    a database of etcd, copied or of etcdctl snapshot      etcdfile:///PATH
    a folder that has one such file below it               etcdfile:///PATH of that file
    one snapshot or log of ZooKeeper                       zkfiles:///PATH
    any other folder                                       zkfiles:///PATH
    tar, plain or of gzip, bzip2 or xz                     unpacked beside other temporary files; then as a folder

The ledgers root is that of the live store, where one of the same kind is named; else the default of each kind.
"""

import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from lzma import LZMAError
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import quote, urlencode

from backends.errors import NoSuchStoreError, UnavailableError
from backends.files import open_regular
from backends.registry import parse_store_uri
from backends.zkfiles import servers, txnlog
from reconcile.stores import catalog_path, is_backup
from recovery.errors import InputError
from recovery.inspect.file_kinds import HEAD, FileKind, kind_of

_ARCHIVE: Final = re.compile(r"\.(tar(\.\w+)?|t[gbx]z2?)$")
_DAMAGED: Final = (EOFError, zlib.error, LZMAError)
"""What is raised of compressed bytes that are cut or damaged."""
_OPAQUE: Final = re.compile(r"[A-Za-z0-9+.-]+:")


@contextmanager
def find_snapshots(given: Sequence[str], live: str | None) -> Iterator[tuple[str, ...]]:
    """Give the URI of each, as `reconcile.stores` takes it; what was unpacked for it is removed afterwards.

    Args:
        given: URIs and paths, as somebody typed them.
        live: URI of the store that they are of; None: it is not named.

    Raises:
        InputError: a path leads nowhere, to nothing of a store, or to a damaged archive.
        UnsupportedStoreError: the live store's URI is malformed.
    """
    with ExitStack() as stack:
        yield tuple(_name(text, live, stack) for text in given)


def _name(text: str, live: str | None, stack: ExitStack) -> str:
    if catalog_path(text) is not None or _OPAQUE.match(text):
        return text
    path = Path(text).absolute()
    if not os.path.lexists(path):
        raise InputError(text, "is not there", "name a file or a folder of the store, a capture's folder, or a URI")
    if path.is_file() and _is_archive(path):
        folder = Path(stack.enter_context(TemporaryDirectory(prefix=f"bkmeta-{path.name}-")))
        _unpack(path, folder)
        path = folder
    if path.is_dir():
        scheme, path = _look_into(path, text)
    else:
        scheme = _of_file(path)
    return f"{scheme}://{quote(os.fsencode(path))}{_name_root(scheme, live)}"


def _is_archive(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (OSError, *_DAMAGED):
        # Cut or damaged, or not readable: what it is then, and why it cannot be read, is said by who reads it.
        return _ARCHIVE.search(path.name) is not None


def _of_file(path: Path) -> str:
    kind = _find_kind(path)
    if kind is FileKind.ETCD:
        return "etcdfile"
    if kind in (FileKind.ZK_SNAPSHOT, FileKind.ZK_LOG) or txnlog.first_of(path.name) is not None:
        return "zkfiles"
    problem = (
        "is neither a file of ZooKeeper, nor a database of etcd, nor an archive"
        if kind is None
        else f"is of another kind: {kind}"
    )
    raise InputError(str(path), problem, "name what the store's servers keep, a capture's folder, or a URI")


def _find_kind(path: Path) -> FileKind | None:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return kind_of(path, file.read(HEAD))[0]
    except InputError:
        return None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}", "let this user read it") from error


def _look_into(folder: Path, given: str) -> tuple[str, Path]:
    """Return of what kind of store a folder is, and what of it is named: the folder, or etcd's only database in it."""
    try:
        servers.find(folder)
    except UnavailableError as error:
        raise InputError(given, f"cannot be read: {error}", "let this user read it") from error
    except NoSuchStoreError as error:
        databases = [path for path in _list_files(folder) if _find_kind(path) is FileKind.ETCD]
        if len(databases) == 1:
            return "etcdfile", databases[0]
        problem = f"has {len(databases)} databases of etcd" if databases else "has files of neither ZooKeeper nor etcd"
        raise InputError(given, problem, "name one file, or the folder of the servers' files") from error
    return "zkfiles", folder


def _list_files(folder: Path) -> Iterable[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack the files and folders of an archive; links and devices are left out, and nothing leaves the folder."""
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, (member for member in tar if member.isreg() or member.isdir()), filter="data")
    except (tarfile.TarError, OSError, *_DAMAGED) as error:
        problem = f"cannot be unpacked into {folder.parent}: {error}"
        raise InputError(str(archive), problem, "unpack it where there is room, and name that folder") from error


def _name_root(scheme: str, live: str | None) -> str:
    if live is None or catalog_path(live) is not None or is_backup(live):
        return ""
    address = parse_store_uri(live)
    if address.kind != parse_store_uri(f"{scheme}:///").live_kind:
        return ""
    layout = {"layout": address.layout_hint} if address.layout_hint and scheme == "zkfiles" else {}
    return "?" + urlencode({"root": address.root, **layout}, safe="/")
