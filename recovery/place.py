"""Places of datasets: a folder of this machine, or one of an object store or a cluster's file system.

    /dir, dir, file:///dir    a folder: a `pathlib.Path`
    s3://bucket/dir           a `RemotePlace`, by `pyarrow.fs`
    gs://bucket/dir           likewise
    hdfs://host:port/dir      likewise; needs libhdfs, with CLASSPATH and JAVA_HOME

A `RemotePlace` has those methods of `pathlib.Path` that datasets need, and is not a path of the operating system: what
would open it as a local file fails instead.

Credentials, region, endpoint and certificates are of the environment, as the stores' own tools read them, and never of
a URI: URIs are in plans, journals and logs. For S3 that is AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, AWS_PROFILE, a role of the host, AWS_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_CA_BUNDLE;
for Google GOOGLE_APPLICATION_CREDENTIALS, CLOUD_STORAGE_EMULATOR_ENDPOINT; for HDFS HADOOP_USER_NAME, and Hadoop's own
configuration.

An object of S3 or Google is there whole or not at all; in HDFS a file gets its name when it is whole. Stores answer now
and then with 503, late, or not at all: each call is tried `_ATTEMPTS` times, and a file that was written is read again
and compared, for an answer that was lost says neither that the file is there nor that it is not.
"""

import os
import shutil
from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from recovery.errors import InputError
from recovery.verified_file import hash_whole

REMOTE: Final = ("s3", "gs", "hdfs")
_FILE: Final = "file"
_AMAZON: Final = "s3"
_GOOGLE: Final = "gcs"
_HADOOP: Final = "hdfs"
"""What Arrow calls file systems."""
_ATTEMPTS: Final = 5
"""Of each call, and of each file that is written: the waits between them double, and end after half a minute or so."""
_PATIENCE_S: Final = 20
"""An answer of which nothing comes for so long is given up, and asked for again."""
_COPIED: Final = 1 << 20
_GOOGLE_CREDENTIALS: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_EMULATOR: Final = "CLOUD_STORAGE_EMULATOR_ENDPOINT"
_VARIABLES: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_CA_BUNDLE",
    _GOOGLE_CREDENTIALS,
    _EMULATOR,
    "HADOOP_USER_NAME",
)
"""What a client is made by."""
_ENVIRONMENT: Final = "leave it out of the URI: credentials and endpoints are taken from the environment"


@dataclass(frozen=True, slots=True, order=True)
class RemotePlace:
    """A file or a folder of a store. Can be pickled; holds nothing open.

    Attributes:
        uri: where it is, without a slash at its end.
    """

    uri: str

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> "RemotePlace":
        return RemotePlace(f"{self.uri}/{name}")

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.uri.rsplit("/", 1)[-1]

    @property
    def parent(self) -> "RemotePlace":
        """The folder that it is in."""
        return RemotePlace(self.uri.rsplit("/", 1)[0])

    def with_name(self, name: str) -> "RemotePlace":
        """Return the place of another name in the same folder."""
        return self.parent / name

    def absolute(self) -> "RemotePlace":
        """Return the place: it is the same one wherever it is asked for."""
        return self

    def resolve(self) -> "RemotePlace":
        """Return the place: stores have no links."""
        return self

    def mkdir(self, mode: int = 0o777, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: folders are there as soon as a file is; who may read there, the store's own rules say."""

    def is_file(self) -> bool:
        """Whether it is a file."""
        system, path = open_system(self.uri)
        return bool(system.get_file_info(path).is_file)

    def is_dir(self) -> bool:
        """Whether there is anything in it."""
        from pyarrow import fs  # noqa: PLC0415 - as in iterdir

        system, path = open_system(self.uri)
        return bool(system.get_file_info(path).type == fs.FileType.Directory)

    def exists(self) -> bool:
        """Whether there is a file or a folder of this name."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator["RemotePlace"]:
        """Yield what is in a folder, in the order of the names; nothing where it is not there."""
        from pyarrow import fs  # noqa: PLC0415 - takes longer to load than a small command

        system, path = open_system(self.uri)
        # Of Google's, Arrow lists no folder in a folder: what is below it shows that it is there.
        is_flat = system.type_name == _GOOGLE
        entries = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=is_flat))
        names = {entry.path.removeprefix(f"{path}/").partition("/")[0] for entry in entries}
        yield from sorted(self / name for name in names)

    def glob(self, pattern: str) -> Iterator["RemotePlace"]:
        """Yield what is in a folder and has such a name."""
        yield from (place for place in self.iterdir() if fnmatch(place.name, pattern))

    def read_bytes(self) -> bytes:
        """Return what a file holds."""
        system, path = open_system(self.uri)
        require_there(system, path)
        with system.open_input_stream(path) as source:
            return bytes(source.read())

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove a file."""
        system, path = open_system(self.uri)
        try:
            system.delete_file(path)
        except OSError as error:
            # HDFS says about a file that is not there only that it failed.
            if not isinstance(error, FileNotFoundError) and self.is_file():
                raise
            if not missing_ok:
                raise FileNotFoundError(self.uri) from error

    def put(self, whole: Path, sha256: str) -> None:
        """Store a local file here, in place of one that is there; whoever reads sees the old one, the new one, or none.

        Raises:
            OSError: it is not there as it should be, however often it was tried.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._copy(whole)
            except (OSError, ValueError) as error:
                # The answer may have been lost, and not the file: an upload in parts can be ended only once. And who
                # writes on to a stream of Google's that failed gets a ValueError, for it is closed.
                if self._holds(whole.stat().st_size, sha256):
                    return
                if attempt == _ATTEMPTS:
                    raise OSError(str(error.__context__ or error)) from error
                continue
            if self._holds(whole.stat().st_size, sha256):
                return
        raise OSError(f"is not what was written, {_ATTEMPTS} times")

    def _copy(self, whole: Path) -> None:
        system, path = open_system(self.uri)
        is_atomic = system.type_name in (_AMAZON, _GOOGLE)
        target = path if is_atomic else f"{path}.{os.getpid()}.tmp"
        if not is_atomic:
            system.create_dir(path.rsplit("/", 1)[0], recursive=True)
        with whole.open("rb") as source, system.open_output_stream(target) as sink:
            shutil.copyfileobj(source, sink, _COPIED)
        if not is_atomic:
            if system.get_file_info(path).is_file:
                system.delete_file(path)
            system.move(target, path)

    def _holds(self, size: int, sha256: str) -> bool:
        system, path = open_system(self.uri)
        with suppress(OSError):
            if system.get_file_info(path).size != size:
                return False
            with system.open_input_stream(path) as source:
                return hash_whole(source) == sha256
        return False


DatasetPlace: TypeAlias = Path | RemotePlace


def is_remote(text: str) -> bool:
    """Whether a text names a place of a store; any other text is a path, or a URI of something else."""
    return text.partition("://")[0] in REMOTE and "://" in text


def to_place(text: str | DatasetPlace) -> DatasetPlace:
    """Return the place that a path or a URI names.

    Raises:
        InputError: a URI that names no place, or has credentials in it.
    """
    if not isinstance(text, str):
        return text
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in (*REMOTE, _FILE):
        return Path(text)
    authority = rest.partition("/")[0]
    if "@" in authority or "?" in rest or "#" in rest:
        # What is there may be a secret: it is not repeated.
        shown = f"{scheme}://{authority.rpartition('@')[2].partition('?')[0]}/…"
        raise InputError(shown, "has a user, a password or parameters in it", _ENVIRONMENT)
    parts = urlsplit(text)
    if scheme == _FILE:
        if parts.netloc not in ("", "localhost"):
            raise InputError(text, "names another host", "write file:///folder, or mount it and name the folder")
        return Path(unquote(parts.path))
    if not parts.netloc:
        raise InputError(text, "names no bucket or host", f"write {scheme}://NAME/folder")
    if {"", ".", ".."} & {*PurePosixPath(rest.rstrip("/")).parts, *rest.rstrip("/").split("/")}:
        raise InputError(text, "has an empty name, or dots, in its path", f"write {scheme}://NAME/folder")
    return RemotePlace(f"{scheme}://{rest.rstrip('/')}")


def open_system(text: str) -> tuple[Any, str]:
    """Return the file system of a place, and its path there.

    Raises:
        InputError: a URI that names no place; or libraries or settings that its store needs are not there.
    """
    from pyarrow import fs  # noqa: PLC0415 - as in iterdir

    place = to_place(text)
    if isinstance(place, Path):
        return fs.LocalFileSystem(), str(place.resolve())
    scheme, _, rest = place.uri.partition("://")
    surroundings = (os.getpid(), *map(os.environ.get, _VARIABLES))
    authority, path = "", rest
    if scheme == "hdfs":
        authority, _, path = rest.partition("/")
        path = f"/{path}"
    try:
        return _connect(scheme, authority, surroundings), path
    except ImportError as error:
        remedy = "write to a folder and copy that, or use the program as a package installs it"
        raise InputError(
            place.uri, f"is of a store whose client ({scheme}) this program was built without", remedy
        ) from error


def require_there(system: Any, path: str) -> None:  # noqa: ANN401 - a file system of pyarrow
    """Refuse a file that is not there before it is opened: HDFS's own library writes to stderr then.

    Raises:
        FileNotFoundError: it is not there.
    """
    if system.type_name == _HADOOP and not system.get_file_info(path).is_file:
        raise FileNotFoundError(path)


@lru_cache
def _connect(scheme: str, authority: str, _surroundings: Hashable) -> Any:  # noqa: ANN401 - a file system of pyarrow
    """Return the client of a store: one a process and environment, for connections do not outlive a fork."""
    from pyarrow import fs  # noqa: PLC0415 - as in iterdir

    if scheme == "s3":
        endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "")
        return fs.S3FileSystem(
            region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
            endpoint_override=endpoint.netloc or None,
            scheme=endpoint.scheme or None,
            tls_ca_file_path=os.environ.get("AWS_CA_BUNDLE"),
            request_timeout=_PATIENCE_S,
            # What fails is said by the call that fails.
            background_writes=False,
            # Small files are stored by one call, not three.
            allow_delayed_open=True,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        )
    if scheme == "gs":
        # As Google's own libraries have it: nobody asks an emulator's users who they are.
        is_open = bool(os.environ.get(_EMULATOR)) and not os.environ.get(_GOOGLE_CREDENTIALS)
        return fs.GcsFileSystem(anonymous=is_open, retry_time_limit=timedelta(seconds=_PATIENCE_S))
    host, _, port = authority.partition(":")
    try:
        return fs.HadoopFileSystem(host, int(port or 8020))
    except (OSError, ValueError) as error:
        problem = f"cannot be used ({str(error).splitlines()[0]})"
        raise InputError(f"hdfs://{authority}", problem, "set JAVA_HOME, HADOOP_HOME and CLASSPATH") from error


def remove_tree(place: DatasetPlace, *, ignore_errors: bool = True) -> None:
    """Remove a folder with all that is in it.

    Raises:
        OSError: it cannot be removed, and that is not to be ignored.
    """
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=ignore_errors)
        return
    system, path = open_system(place.uri)
    try:
        system.delete_dir(path)
    except FileNotFoundError:
        """Nothing is there; or all that was is gone, and Google's never had an object that stands for the folder."""
    except OSError:
        if not ignore_errors:
            raise


def copy_tree(source: DatasetPlace, target: DatasetPlace) -> None:
    """Copy a folder, file by file; memory does not grow with theirs.

    Raises:
        OSError: a file cannot be read or written.
    """
    if isinstance(source, Path) and isinstance(target, Path):
        shutil.copytree(source, target)
        return
    import tempfile  # noqa: PLC0415 - only here

    for item in source.iterdir():
        if item.is_dir():
            copy_tree(item, target / item.name)
            continue
        if isinstance(target, Path):
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            _fetch(item, target / item.name)
            continue
        with tempfile.TemporaryDirectory(prefix="bkmeta-copy-") as folder:
            kept = Path(folder) / "file"
            _fetch(item, kept)
            with kept.open("rb") as file:
                digest = hash_whole(file)
            (target / item.name).put(kept, digest)


def _fetch(source: DatasetPlace, target: Path) -> None:
    """Copy a file to this machine."""
    if isinstance(source, Path):
        shutil.copyfile(source, target)
        return
    system, path = open_system(source.uri)
    with system.open_input_stream(path) as stored, target.open("wb") as sink:
        shutil.copyfileobj(stored, sink, _COPIED)
