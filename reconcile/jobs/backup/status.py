"""What a backup holds: what can be restored, what cannot, and how old its end is."""

from dataclasses import dataclass

from recovery.backup.chain import open_backup
from recovery.backup.manifest import BackupManifest, BaseLink, GapLink, SegmentLink, list_windows
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True)
class RestorableWindow:
    """A stretch in which every transaction can be restored.

    Attributes:
        first, last: its transactions.
        from_ms, until_ms: its times, ms since 1970.
    """

    first: int
    last: int
    from_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class BackupStatus:
    """What a backup says about itself.

    Attributes:
        uri: of the store that is followed.
        means: how.
        through: last transaction that is sealed.
        until_ms: all that was committed before this time is sealed; 0: nothing is.
        rpo_s: the age of that; None: nothing is sealed.
        windows: what can be restored, ascending.
        bases, segments, gaps: the links of the chain.
        changes: in the segments.
        bytes: of the segments.
        encryption: age or gpg; None: it is not encrypted.
        damaged: numbers of later manifests that cannot be read.
        hash: of the chain.
    """

    uri: str
    means: str
    through: int
    until_ms: int
    rpo_s: float | None
    windows: tuple[RestorableWindow, ...]
    bases: tuple[BaseLink, ...]
    segments: tuple[SegmentLink, ...]
    gaps: tuple[GapLink, ...]
    changes: int
    bytes: int
    encryption: str | None
    damaged: tuple[int, ...]
    hash: str


def read_status(place: DatasetPlace | str, now_ms: int) -> BackupStatus:
    """Return what a backup says about itself; no file of changes is read.

    Raises:
        DatasetError: there is no backup.
    """
    backup = open_backup(place)
    manifest = backup.manifest
    return BackupStatus(
        uri=str(manifest.binding.get("uri", "")),
        means=str(manifest.binding.get("means", "")),
        through=manifest.through,
        until_ms=manifest.until_ms,
        rpo_s=max(0, now_ms - manifest.until_ms) / 1000 if manifest.until_ms else None,
        windows=tuple(_list_windows(manifest)),
        bases=tuple(manifest.bases),
        segments=tuple(manifest.segments),
        gaps=tuple(manifest.gaps),
        changes=sum(link.part.rows for link in manifest.segments),
        bytes=sum(link.part.bytes for link in manifest.segments),
        encryption=manifest.encryption,
        damaged=backup.damaged,
        hash=manifest.hash,
    )


def _list_windows(manifest: BackupManifest) -> list[RestorableWindow]:
    gaps = {gap.after: gap for gap in manifest.gaps}
    return [
        RestorableWindow(first, last, base.until_ms, gaps[last].from_ms if last in gaps else manifest.until_ms)
        for base, first, last in list_windows(manifest)
    ]
