"""What a backup says about itself: one JSON object, written again under the next number whenever the backup grows.

    kind, schema_version, tool_version, digest   as in manifests of datasets
    number        of this manifest; the highest that is whole is the backup
    binding       what is followed: uri, root, layout, tops, means, instance_id
    secret        true: files have mode 0600
    encryption    how files are encrypted: age or gpg; null: they are not
    start         hash that the first link follows
    links         base, segment and gap, in the order in which they were sealed; each with its hash
    seals         number of the last seal
    through       last transaction that is sealed, with all before it
    until_ms      all that was committed before this time is sealed, ms since 1970
    pending       folder of a base that is being written; null: none is
    replaced      files that no link names any more, and since when: readers of earlier manifests may still read them

    link      hash of
    base      the hash before it, "base", its transaction, the digest of its catalog
    segment   the hash before it, and seal by seal its number and the hash of its rows (`recovery.backup.seals`)
    gap       the hash before it, "gap", both ends, why

Several segments are merged into one without another hash: it is that of the last of them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, TypeAlias

from recovery import __version__
from recovery.backup.seals import START, hash_base, hash_gap
from recovery.errors import DatasetError
from recovery.manifest import Part, digest_of
from recovery.model import tables

KIND: Final = "backup"


class OtherVersionError(DatasetError):
    """A manifest that another version of the program wrote: it is whole, and no other one counts instead of it."""


_REMEDY: Final = "name a folder that bkmeta backup follow wrote"


@dataclass(frozen=True, slots=True)
class BaseLink:
    """A catalog of all that is followed, at one transaction.

    Attributes:
        folder: of the catalog; where it is encrypted, one file.
        txn: the transaction that it shows.
        until_ms: when the store was so, ms since 1970.
        digest: of the catalog.
        sha256: of the encrypted file; empty: it is not encrypted.
        hash: of the chain up to here.
        ledgers: in it.
        seal: number of the last seal before it.
    """

    folder: str
    txn: int
    until_ms: int
    digest: str
    hash: str
    ledgers: int
    seal: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class SegmentLink:
    """A file of changes.

    Attributes:
        part: the file.
        first_seal, last_seal: whose rows are in it.
        after: all changes after this transaction, up to `through`, are in it.
        through: see `after`.
        from_ms, until_ms: all that was committed between these is in it, ms since 1970.
        hash: of the chain up to here.
    """

    part: Part
    first_seal: int
    last_seal: int
    after: int
    through: int
    from_ms: int
    until_ms: int
    hash: str

    @property
    def seals(self) -> int:
        """How many numbers of seals it spans."""
        return self.last_seal - self.first_seal + 1


@dataclass(frozen=True, slots=True)
class GapLink:
    """Changes that the backup does not have.

    Attributes:
        after: last transaction before it.
        until: what the base behind it shows; in between nothing is known.
        from_ms, until_ms: the times of both.
        why: what happened.
        hash: of the chain up to here.
    """

    after: int
    until: int
    from_ms: int
    until_ms: int
    why: str
    hash: str


Link: TypeAlias = BaseLink | SegmentLink | GapLink
_KINDS: Final[Mapping[str, type[Link]]] = {"base": BaseLink, "segment": SegmentLink, "gap": GapLink}


@dataclass(frozen=True, slots=True)
class ReplacedFile:
    """A file, or the folder of a base, that no link names any more.

    Attributes:
        file: its name.
        since_ms: when, ms since 1970.
    """

    file: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """What a backup holds; the attributes are those of the JSON object."""

    binding: Mapping[str, Any]
    number: int = 0
    secret: bool = True
    encryption: str | None = None
    start: str = START
    links: Sequence[Link] = ()
    seals: int = 0
    through: int = 0
    until_ms: int = 0
    pending: str | None = None
    replaced: Sequence[ReplacedFile] = field(default=())

    @property
    def hash(self) -> str:
        """Of the whole chain."""
        return self.links[-1].hash if self.links else self.start

    @property
    def bases(self) -> list[BaseLink]:
        """The bases, in their order."""
        return [link for link in self.links if isinstance(link, BaseLink)]

    @property
    def segments(self) -> list[SegmentLink]:
        """The segments, in their order."""
        return [link for link in self.links if isinstance(link, SegmentLink)]

    @property
    def gaps(self) -> list[GapLink]:
        """The gaps, in their order."""
        return [link for link in self.links if isinstance(link, GapLink)]

    def list_files(self) -> set[str]:
        """Return the names of all that must stay: of segments, bases, and what was replaced a short time ago."""
        names = {link.part.file for link in self.segments} | {link.folder for link in self.bases}
        names |= {file.file for file in self.replaced}
        return names | ({self.pending} if self.pending else set())


_FIELDS: Final = tuple(entry.name for entry in fields(BackupManifest))


def make_base(previous: str, base: Mapping[str, Any]) -> BaseLink:
    """Return the link of a base behind a hash; the fields are those of `BaseLink` but for `hash`."""
    return BaseLink(**base, hash=hash_base(previous, base["txn"], base["digest"]))


def make_gap(previous: str, gap: Mapping[str, Any]) -> GapLink:
    """Return the link of a gap behind a hash; the fields are those of `GapLink` but for `hash`."""
    return GapLink(**gap, hash=hash_gap(previous, gap["after"], gap["until"], gap["why"]))


def render_manifest(manifest: BackupManifest) -> bytes:
    """Return the JSON object."""
    names = {kind: name for name, kind in _KINDS.items()}
    body: dict[str, Any] = {
        "kind": KIND,
        "schema_version": list(tables.SCHEMA_VERSION),
        "tool_version": __version__,
        **{name: getattr(manifest, name) for name in _FIELDS if name not in ("links", "replaced")},
        "links": [{"link": names[type(link)], **asdict(link)} for link in manifest.links],
        "replaced": [asdict(file) for file in manifest.replaced],
    }
    return json.dumps({**body, "digest": digest_of(body)}, separators=(",", ":")).encode()


def parse_manifest(raw: bytes, where: str) -> BackupManifest:
    """Return what a JSON object says.

    Raises:
        OtherVersionError: another version of the program wrote it.
        DatasetError: it is cut, altered, or none of ours.
    """
    try:
        body = json.loads(raw)
        if body["kind"] != KIND:
            raise DatasetError(where, f"is of kind {body['kind']}, not {KIND}", _REMEDY)
        if body["schema_version"][0] != tables.SCHEMA_VERSION[0]:
            problem = f"has schema version {body['schema_version'][0]}"
            raise OtherVersionError(where, problem, "use the bkmeta that wrote it")
        if body["digest"] != digest_of(body):
            raise DatasetError(where, "does not agree with its digest", "copy the backup again")
        values = {name: body[name] for name in _FIELDS}
        links = [_parse_link(link) for link in body["links"]]
        replaced = [ReplacedFile(**file) for file in body["replaced"]]
        return BackupManifest(**values | {"links": links, "replaced": replaced})
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise DatasetError(where, "is no manifest of a backup", _REMEDY) from error


def _parse_link(body: Mapping[str, Any]) -> Link:
    values = dict(body)
    kind = _KINDS[values.pop("link")]
    if kind is SegmentLink:
        values["part"] = Part(**values["part"])
    return kind(**values)


def list_windows(manifest: BackupManifest) -> Iterator[tuple[BaseLink, int, int]]:
    """Yield what can be restored: a base, and from and to which transaction it and what follows it reach.

    Windows begin at the first base and behind each gap, ascending.
    """
    gaps = sorted(manifest.gaps, key=lambda gap: gap.until)
    edges = [0, *(gap.until for gap in gaps)]
    ends = [*(gap.after for gap in gaps), manifest.through]
    for low, high in zip(edges, ends, strict=True):
        bases = sorted((base for base in manifest.bases if low <= base.txn <= high), key=lambda base: base.txn)
        if bases:
            yield bases[0], bases[0].txn, high
