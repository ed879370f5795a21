"""A backup in its folder: numbered manifests, and the files that they name. The highest whole manifest counts.

    head.json                        number of the last manifest; a hint: what comes behind it is searched for
    manifests/NUMBER.json            `recovery.backup.manifest`; the last `KEPT` stay
    segments/NUMBER-WRITER.parquet   changes; NUMBER is that of the manifest that names it first
    bases/NUMBER-WRITER/             a catalog; one file with .age or .gpg behind its name where it is encrypted

A file is whole before a manifest names it, and a manifest before the head does; nothing is ever written over but the
head. So whatever breaks off leaves what was sealed before. Nothing goes by times of files, and no listing is needed to
read: one that is late, or leaves names out, changes nothing.

Two who write at once: the second finds the number taken, and stops. Where a store lets both write it, the next write of
the one whose manifest is gone finds that, and stops.
"""

import json
import os
import secrets
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from recovery.backup.encryption import Recipient, can_decrypt, decrypt
from recovery.backup.manifest import (
    KIND,
    BackupManifest,
    BaseLink,
    Link,
    OtherVersionError,
    ReplacedFile,
    SegmentLink,
    make_base,
    make_gap,
    parse_manifest,
    render_manifest,
)
from recovery.backup.seals import hash_seal
from recovery.dataset import Dataset, open_dataset, write_part
from recovery.errors import DatasetError
from recovery.manifest import Part
from recovery.model import tables
from recovery.out_folder import disk_error, sync_folder, write_whole
from recovery.place import DatasetPlace, open_system, remove_tree, to_place
from recovery.verified_file import hash_whole

_HEAD: Final = "head.json"
_MANIFESTS: Final = "manifests"
_SEGMENTS: Final = "segments"
_BASES: Final = "bases"
_PARQUET: Final = ".parquet"
KEPT: Final = 16
"""Manifests that stay: readers may have an earlier one open."""
_MERGED: Final = 16
"""Segments of about one size that are merged into one."""
_LARGEST: Final = 128 << 20
"""Bytes of what is merged: larger files stay as they are."""
_GRACE_MS: Final = 15 * 60 * 1000
"""What was replaced stays for so long: readers of earlier manifests read it."""
_BATCH: Final = 65_536
_REMEDY: Final = "name a folder that bkmeta backup follow wrote"


class BackupTakenError(DatasetError):
    """Another follower writes the same backup."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup to be read.

    Attributes:
        place: its folder.
        manifest: what it holds.
        damaged: numbers of later manifests that cannot be read.
    """

    place: DatasetPlace
    manifest: BackupManifest
    damaged: tuple[int, ...] = ()

    def read_changes(self, links: Sequence[SegmentLink], columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yield the changes of some segments in their order, some columns of them.

        Raises:
            DatasetError: a file is gone or damaged.
            InputError: they are encrypted, and cannot be decrypted.
        """
        for link in links:
            if self.manifest.encryption is None:
                yield from self.as_dataset([link]).batches("changes", columns)
                continue
            with self._decrypt(link.part.file, link.part.sha256) as path:
                try:
                    for batch in pq.ParquetFile(path).iter_batches(_BATCH, columns=columns, use_threads=False):
                        yield pa.Table.from_batches([batch])
                except pa.ArrowException as error:
                    raise self._name_altered(link.part.file) from error

    def as_dataset(self, links: Sequence[SegmentLink]) -> Dataset:
        """Return some segments as a dataset; they are not encrypted."""
        from dataclasses import asdict  # noqa: PLC0415 - only here

        parts = [asdict(link.part) for link in links]
        # Files of several versions: what is not in an earlier one is null.
        manifest = {"kind": KIND, "schema_version": [tables.SCHEMA_VERSION[0], 0], "tables": {"changes": parts}}
        return Dataset(str(self.place.absolute()), manifest)

    @contextmanager
    def open_base(self, link: BaseLink) -> Iterator[Dataset]:
        """Give a base's catalog.

        Raises:
            DatasetError: it is gone or damaged, or not the one that was sealed.
            InputError: it is encrypted, and cannot be decrypted.
        """
        if self.manifest.encryption is None:
            yield self._require_sealed(open_dataset(self.place / link.folder, "catalog"), link)
            return
        with self._decrypt(link.folder, link.sha256) as path, tempfile.TemporaryDirectory(prefix="bkmeta-base-") as to:
            with tarfile.open(path) as tar:
                tar.extractall(to, filter="data")
            yield self._require_sealed(open_dataset(to, "catalog"), link)

    def _require_sealed(self, catalog: Dataset, link: BaseLink) -> Dataset:
        if catalog.digest != link.digest:
            raise self._name_altered(link.folder)
        return catalog

    @contextmanager
    def _decrypt(self, file: str, digest: str) -> Iterator[Path]:
        assert self.manifest.encryption is not None  # noqa: S101 - the callers see to that
        system, root = open_system(str(self.place))
        with tempfile.TemporaryDirectory(prefix="bkmeta-backup-") as folder:
            kept, plain = Path(folder) / "encrypted", Path(folder) / "plain"
            try:
                with system.open_input_stream(f"{root}/{file}") as source, kept.open("wb") as sink:
                    while block := source.read(1 << 20):
                        sink.write(block)
            except OSError as error:
                raise DatasetError(f"{self.place}/{file}", "is missing, or cannot be read", _REMEDY) from error
            with kept.open("rb") as copied:
                if hash_whole(copied) != digest:
                    raise self._name_altered(file)
            decrypt(self.manifest.encryption, kept, plain)
            yield plain

    def _name_altered(self, file: str) -> DatasetError:
        return DatasetError(f"{self.place}/{file}", "is not the file that the backup sealed", "copy the backup again")


def open_backup(text: str | DatasetPlace) -> Backup:
    """Open a backup: its highest whole manifest.

    Raises:
        DatasetError: there is none.
        InputError: a URI that names no place, or has credentials in it.
    """
    place = to_place(text)
    damaged: list[int] = []
    try:
        highest = _find_highest(place)
        for number in range(highest, max(highest - KEPT, 0), -1):
            try:
                manifest = parse_manifest(_locate(place, number).read_bytes(), str(_locate(place, number)))
                return Backup(place, manifest, tuple(damaged))
            except OtherVersionError:
                raise
            except (DatasetError, FileNotFoundError):
                damaged.append(number)
    except OSError as error:
        problem = f"cannot be read ({str(error).splitlines()[0]})"
        raise DatasetError(str(place), problem, "see that it can be reached, and what you may do there") from error
    raise DatasetError(str(place), "holds no whole manifest" if damaged else "holds no backup", _REMEDY)


def _locate(place: DatasetPlace, number: int) -> DatasetPlace:
    return place / _MANIFESTS / f"{number:010d}.json"


def _find_highest(place: DatasetPlace) -> int:
    """Return the highest number of a manifest; 0: there is none."""
    number = 0
    with suppress(OSError, ValueError, KeyError, TypeError):
        number = int(json.loads((place / _HEAD).read_bytes())["number"])
    if not number or not _locate(place, number).is_file():
        number = 0
        with suppress(FileNotFoundError):
            names = [path.name for path in (place / _MANIFESTS).iterdir()]
            number = max((int(name[:-5]) for name in names if name[:-5].isdigit()), default=0)
    while _locate(place, number + 1).is_file():
        number += 1
    return number


class BackupWriter:
    """Makes a backup grow; one at a time.

    Args:
        place: its folder; where it holds a backup, that is gone on with.
        binding: what is followed.
        recipient: who can read it; None: it is not encrypted.

    Raises:
        DatasetError: the folder cannot be read or written, or holds a backup of something else.
    """

    def __init__(self, place: DatasetPlace, binding: dict[str, Any], recipient: Recipient | None = None) -> None:
        self._place = place
        self._recipient = recipient
        self._writer = secrets.token_hex(4)
        self._recent: dict[str, pa.Table] = {}
        self._last: bytes | None = None
        tool = recipient.tool if recipient else None
        try:
            for name in ("", _MANIFESTS, _SEGMENTS, _BASES):
                (place / name if name else place).mkdir(mode=0o700, parents=True, exist_ok=True)
            if number := _find_highest(place):
                # What a damaged manifest said comes again; its number does not.
                self.manifest = replace(open_backup(place).manifest, number=number)
            else:
                self.manifest = BackupManifest(dict(binding), encryption=tool)
        except OSError as error:
            raise disk_error(place, error) from error
        self._require_same(binding, tool)
        if self.manifest.pending:
            # Who wrote it is gone: who leads now begins another one.
            self.manifest = replace(self.manifest, pending=None)

    def _require_same(self, binding: dict[str, Any], tool: str | None) -> None:
        if self.manifest.encryption != tool:
            earlier_tool = self.manifest.encryption or "nothing"
            problem = f"is encrypted with {earlier_tool}, and {tool or 'nothing'} was asked for"
            raise DatasetError(str(self._place), problem, "follow into another folder")
        for name in ("root", "tops", "instance_id", "history"):
            earlier, wanted = self.manifest.binding.get(name), binding.get(name)
            if earlier != wanted and None not in (earlier, wanted):
                problem = f"is a backup of another {name} ({earlier}), not of {wanted}"
                raise DatasetError(str(self._place), problem, "follow into another folder")

    @property
    def has_base(self) -> bool:
        """Whether anything can be restored, and changes may follow."""
        return bool(self.manifest.bases)

    # Changes

    def seal(self, rows: pa.Table, through: int, until_ms: int, now_ms: int) -> None:
        """Seal changes, and that all up to a transaction is known.

        Args:
            rows: BACKUP_CHANGES without `seal`, in their order; none: only the times go on.
            through: last transaction that is known, with all before it.
            until_ms: all that was committed before this time is known.
            now_ms: the time, of what was replaced.

        Raises:
            BackupTakenError: another one writes the backup.
            DatasetError: the disk is full or refuses; nothing of it is sealed.
        """
        manifest = self.manifest
        seals = manifest.seals
        links = list(manifest.links)
        if rows.num_rows:
            seals += 1
            numbered = rows.add_column(0, tables.BACKUP_CHANGES.field("seal"), pa.array([seals] * rows.num_rows))
            numbered = numbered.select(tables.BACKUP_CHANGES.names).cast(tables.BACKUP_CHANGES)
            part = self._write([numbered])
            self._recent[part.file] = numbered
            links.append(
                SegmentLink(
                    part,
                    first_seal=seals,
                    last_seal=seals,
                    after=manifest.through,
                    through=through,
                    from_ms=manifest.until_ms,
                    until_ms=until_ms,
                    hash=hash_seal(manifest.hash, seals, numbered),
                )
            )
        through = max(through, manifest.through)
        self._publish(replace(manifest, links=links, seals=seals, through=through, until_ms=until_ms))
        self._remove_replaced(now_ms)
        run = self._list_last()
        while (equals := run[-_MERGED:]) and len(equals) == _MERGED and len({_level(link) for link in equals}) == 1:
            if not self._merge(equals, now_ms):
                break
            run = self._list_last()

    def _list_last(self) -> list[SegmentLink]:
        """Return the segments behind the last base or gap."""
        last = takewhile(lambda link: isinstance(link, SegmentLink), reversed(self.manifest.links))
        return [link for link in last if isinstance(link, SegmentLink)][::-1]

    def _merge(self, links: Sequence[SegmentLink], now_ms: int) -> bool:
        """Replace segments that follow each other by one; say whether that was done."""
        if len(links) < 2 or sum(link.part.bytes for link in links) > _LARGEST:
            return False
        kept = [self._recent.get(link.part.file) for link in links]
        tool = self.manifest.encryption
        if None in kept and tool is not None and not can_decrypt(tool):
            return False
        known = [table for table in kept if table is not None]
        rows = iter(known) if len(known) == len(links) else Backup(self._place, self.manifest).read_changes(links)
        first, last = links[0], links[-1]
        merged = replace(
            last, part=self._write(rows), first_seal=first.first_seal, after=first.after, from_ms=first.from_ms
        )
        names = {link.part.file for link in links}
        shorter = list(self.manifest.links)
        position = shorter.index(first)
        shorter[position : position + len(links)] = [merged]
        replaced = [*self.manifest.replaced, *(ReplacedFile(name, now_ms) for name in sorted(names))]
        self._publish(replace(self.manifest, links=shorter, replaced=replaced))
        for name in names:
            self._recent.pop(name, None)
        return True

    def _name(self) -> str:
        return f"{self.manifest.number + 1:010d}-{self._writer}"

    def _write(self, rows: Any) -> Part:  # noqa: ANN401 - tables
        try:
            if self._recipient is None:
                part = write_part(self._place, _SEGMENTS, self._name(), rows, secret=True)
                sync_folder(self._place / _SEGMENTS)
                return part
            with tempfile.TemporaryDirectory(prefix="bkmeta-seal-") as folder:
                plain = write_part(Path(folder), _SEGMENTS, self._name(), rows, secret=True)
                name = f"{plain.file}.{self._recipient.tool}"
                size, digest = self._store_encrypted(Path(folder) / plain.file, name)
                return replace(plain, file=name, bytes=size, sha256=digest, blocks=())
        except OSError as error:
            raise disk_error(self._place / _SEGMENTS, error) from error

    def _store_encrypted(self, plain: Path, name: str) -> tuple[int, str]:
        assert self._recipient is not None  # noqa: S101 - the callers see to that
        sealed = plain.with_name(f"{plain.name}.sealed")
        self._recipient.encrypt(plain, sealed)
        with write_whole(self._place / name, secret=True) as whole, sealed.open("rb") as source:
            while block := source.read(1 << 20):
                whole.sink.write(block)
        sync_folder((self._place / name).parent)
        return whole.size, whole.sha256

    # Bases and gaps

    def begin_base(self) -> DatasetPlace:
        """Return the folder for the catalog of a base; who has it written calls `add_base`.

        Raises:
            BackupTakenError: another one writes the backup.
            DatasetError: the disk is full or refuses.
        """
        name = f"{_BASES}/{self._name()}"
        tool = self._recipient.tool if self._recipient else None
        self._publish(replace(self.manifest, pending=name if tool is None else f"{name}.{tool}"))
        if tool is None:
            return self._place / name
        return Path(tempfile.mkdtemp(prefix="bkmeta-base-")) / "base"

    def give_up_base(self, folder: DatasetPlace) -> None:
        """Remove the folder of a base that is not added; what it has is not encrypted yet.

        Args:
            folder: from `begin_base`.
        """
        remove_tree(folder if self._recipient is None else Path(str(folder)).parent)

    def add_base(self, folder: DatasetPlace, txn: int, until_ms: int, now_ms: int, gap: str | None = None) -> None:
        """Seal a base; what was changed up to it and is not sealed is a gap.

        Args:
            folder: from `begin_base`, with the catalog.
            txn: what the catalog shows.
            until_ms: when the store was so.
            now_ms: the time, of what was replaced.
            gap: why changes before it are missing; None: none are.

        Raises:
            BackupTakenError: another one writes the backup.
            DatasetError: the disk is full or refuses; or no base was begun.
        """
        try:
            self._add_base(folder, txn, until_ms, now_ms, gap)
        finally:
            if self._recipient is not None:
                # Nothing names it: what counts is the encrypted file.
                self.give_up_base(folder)

    def _add_base(self, folder: DatasetPlace, txn: int, until_ms: int, now_ms: int, gap: str | None) -> None:
        catalog = open_dataset(folder, "catalog")
        while (run := self._list_last()) and self._merge(run, now_ms):
            """What lies between two bases is one file, unless it is large."""
        self._recent.clear()
        manifest = self.manifest
        links = list(manifest.links)
        if gap is not None:
            ends = {"after": manifest.through, "until": txn, "from_ms": manifest.until_ms, "until_ms": until_ms}
            links.append(make_gap(manifest.hash, {**ends, "why": gap}))
        name, digest = manifest.pending, ""
        if name is None:
            raise DatasetError(str(folder), "was not begun as a base", _REMEDY)
        if self._recipient is not None:
            digest = self._pack(Path(str(folder)), name)
        base = {
            "folder": name,
            "txn": txn,
            "until_ms": until_ms,
            "digest": catalog.digest,
            "ledgers": catalog.rows("ledgers"),
            "seal": manifest.seals,
            "sha256": digest,
        }
        links.append(make_base(links[-1].hash if links else manifest.hash, base))
        is_first = gap is not None or not manifest.bases
        self._publish(
            replace(
                manifest,
                links=links,
                pending=None,
                through=txn if is_first else manifest.through,
                until_ms=until_ms if is_first else manifest.until_ms,
                binding={**manifest.binding, **_describe(catalog)},
            )
        )

    def _pack(self, folder: Path, name: str) -> str:
        packed = folder.with_suffix(".tar")
        with tarfile.open(packed, "w") as tar:
            tar.add(folder, ".")
        _, digest = self._store_encrypted(packed, name)
        return digest

    def drop_before(self, txn: int, now_ms: int) -> int:
        """Forget all that is before a base; return how many links are gone.

        Args:
            txn: of the base that becomes the first one.
            now_ms: the time, of what is replaced.
        """
        links = list(self.manifest.links)
        position = next(n for n, link in enumerate(links) if isinstance(link, BaseLink) and link.txn == txn)
        # What was sealed before the base may reach beyond its transaction.
        beyond = (n for n, link in enumerate(links[:position]) if isinstance(link, SegmentLink) and link.through > txn)
        first = next(beyond, position)
        gone, kept = links[:first], links[first:]
        if not gone:
            return 0
        names = [name for link in gone for name in _list_files(link)]
        replaced = [*self.manifest.replaced, *(ReplacedFile(name, now_ms) for name in names)]
        self._publish(replace(self.manifest, links=kept, start=gone[-1].hash, replaced=replaced))
        return len(gone)

    # Manifests

    def _publish(self, manifest: BackupManifest) -> None:
        """Write a manifest under the next number; nothing counts before it is there."""
        number = self.manifest.number + 1
        target = _locate(self._place, number)
        manifest = replace(manifest, number=number)
        raw = render_manifest(manifest)
        try:
            self._require_own()
            if isinstance(target, Path):
                _create(target, raw)
                self._require_last(target)
            elif target.is_file():
                raise BackupTakenError(str(target), "was written by another follower", "let one follow at a time")
            else:
                with write_whole(target, secret=True) as whole:
                    whole.sink.write(raw)
            self.manifest = manifest
            self._last = raw
            with write_whole(self._place / _HEAD, secret=True) as whole:
                whole.sink.write(json.dumps({"number": number, "sha256": sha256(raw).hexdigest()}).encode())
            if number > KEPT:
                _locate(self._place, number - KEPT).unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(target, error) from error

    def _require_own(self) -> None:
        """See that the last manifest is the one that this writer wrote: some stores let two write the same name."""
        place = _locate(self._place, self.manifest.number)
        if self._last is None or isinstance(place, Path):
            return
        try:
            manifest = place.read_bytes()
        except FileNotFoundError:
            manifest = b""
        if manifest != self._last:
            raise BackupTakenError(str(place), "was written by another follower", "let one follow at a time")

    def _require_last(self, target: Path) -> None:
        """See that the manifest before a new one is there: else another one is far ahead, and the number was free."""
        if self.manifest.number and not _locate(self._place, self.manifest.number).is_file():
            target.unlink()
            raise BackupTakenError(str(self._place), "is written by another follower", "let one follow at a time")

    def _remove_replaced(self, now_ms: int) -> None:
        old = [file for file in self.manifest.replaced if now_ms - file.since_ms > _GRACE_MS]
        if not old:
            return
        kept = [file for file in self.manifest.replaced if file not in old]
        self._publish(replace(self.manifest, replaced=kept))
        for file in old:
            _remove(self._place, file.file)

    def remove_strays(self, now_ms: int) -> int:
        """Remove what broken-off runs left: files of earlier numbers that no manifest names; return how many.

        Args:
            now_ms: the time.
        """
        self._remove_replaced(now_ms)
        named = self.manifest.list_files()
        strays = 0
        for folder in (_SEGMENTS, _BASES):
            for name in [path.name for path in (self._place / folder).iterdir()]:
                number = name.partition("-")[0]
                is_old = not number.isdigit() or int(number) <= self.manifest.number
                if f"{folder}/{name}" not in named and is_old:
                    _remove(self._place, f"{folder}/{name}")
                    strays += 1
        return strays


def _describe(catalog: Dataset) -> dict[str, Any]:
    coverage = catalog.manifest["coverage"]
    return {name: coverage[name] for name in ("layout", "instance_id") if coverage.get(name)}


def _list_files(link: Link) -> list[str]:
    if isinstance(link, SegmentLink):
        return [link.part.file]
    return [link.folder] if isinstance(link, BaseLink) else []


def _level(link: SegmentLink) -> int:
    level, size = 0, _MERGED
    while link.seals >= size:
        level, size = level + 1, size * _MERGED
    return level


def _create(target: Path, raw: bytes) -> None:
    """Write a file that is not there, whole or not at all.

    Raises:
        BackupTakenError: it is there.
    """
    begun = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with write_whole(begun, secret=True) as whole:
            whole.sink.write(raw)
        os.link(begun, target)
    except FileExistsError as error:
        raise BackupTakenError(str(target), "was written by another follower", "let one follow at a time") from error
    finally:
        begun.unlink(missing_ok=True)
    sync_folder(target.parent)


def _remove(place: DatasetPlace, name: str) -> None:
    path = place / name
    with suppress(OSError):
        if path.is_dir():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)
