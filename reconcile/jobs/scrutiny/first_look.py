"""What a run knows after its first look, written down: one that is killed goes on from its suspects.

    .spill/first-look.json    asked (a hash of it), at, layout, gaps, answers of the tasks, who was asked
    .spill/suspect-…          suspects, by `RangeTask`
    .spill/compared-…         what waits until entries are compared

The file is written last and in one step, and has the hash of each file that it speaks of: where one is not whole any
more, all is looked at anew. It is taken by a run that was asked the same within a day.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from backends.registry import OpenStore
from reconcile.clusters import is_of_cluster
from reconcile.deletes.own_root import read_instance_id
from reconcile.jobs.scrutiny.request import ScrutinyRequest
from recovery import __version__
from recovery.bookies.sampling import Sampled
from recovery.bookies.wire_results import AskedKind, BookieResult, WireSummary
from recovery.codecs.store import Layout
from recovery.dataset import SPILL, Dataset, open_dataset
from recovery.errors import DatasetError
from recovery.out_folder import write_whole
from recovery.place import DatasetPlace, remove_tree

STORE: Final = "store"
_FILE: Final = "first-look.json"
_VALID: Final = timedelta(days=1)
_LATER: Final = ("again-*", "beside*", "raised-*")
"""Parts that are written after the first look."""


@dataclass(frozen=True, slots=True)
class AskedBookies:
    """Who was asked, and what came of it.

    Attributes:
        inventories: given and made.
        given: those that were given.
        summary: of the bookies that were asked; None: none was.
        renames: name in records → id.
        unresolved: names in records that are no known bookie's, with the reason.
        known: ids of all bookies that the store knows.
        absent: of these, those that are not registered, and of which no inventory is given.
        sampled: what came of reading single entries from bookies that give no lists; None: none was read.
    """

    inventories: tuple[Dataset, ...]
    given: tuple[Dataset, ...]
    summary: WireSummary | None
    renames: Mapping[str, str]
    unresolved: Mapping[str, str]
    known: tuple[str, ...]
    absent: tuple[str, ...]
    sampled: Sampled | None = None

    @property
    def without_lists(self) -> tuple[str, ...]:
        """Bookies that were asked and give no lists."""
        if self.summary is None:
            return ()
        return tuple(b.bookie for b in self.summary.bookies if b.kind is AskedKind.NO_LISTS)

    @property
    def samples(self) -> Dataset | None:
        """SAMPLES of these."""
        return None if self.sampled is None else self.sampled.open()

    @property
    def silent(self) -> list[str]:
        """Bookies that were asked and did not answer."""
        return [] if self.summary is None else [b.bookie for b in self.summary.bookies if b.kind is AskedKind.NO_ANSWER]

    @property
    def awaited(self) -> frozenset[str]:
        """Bookies that may answer when they are asked again."""
        if self.summary is None:
            return frozenset()
        failed = () if self.sampled is None else (b.bookie for b in self.sampled.bookies if b.failed)
        unanswered = (b.bookie for b in self.summary.bookies if b.unanswered)
        return frozenset([*self.absent, *self.silent, *unanswered, *failed])


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What a run knows after its first look.

    Attributes:
        at: when the run began.
        layout: of the store.
        gaps: parts of the store that could not be read.
        bookies: who was asked.
        answers: of the tasks, one a bucket range.
    """

    at: datetime
    layout: Layout
    gaps: tuple[str, ...]
    bookies: AskedBookies
    answers: list[dict[str, Any]]


def write_first_look(request: ScrutinyRequest, look: FirstLook) -> None:
    """Write down what is known, for a run that goes on from here."""
    bookies = look.bookies
    content = {
        "asked": _hash_request(request, bookies.given),
        "at": look.at.isoformat(),
        "layout": look.layout.value,
        "gaps": look.gaps,
        "answers": look.answers,
        "files": _hash_files(request.out, look.answers),
        "made": [inventory.path for inventory in bookies.inventories[len(bookies.given) :]],
        "summary": None if bookies.summary is None else asdict(bookies.summary),
        "renames": bookies.renames,
        "unresolved": bookies.unresolved,
        "known": bookies.known,
        "absent": bookies.absent,
        "sampled": None if bookies.sampled is None else asdict(bookies.sampled),
    }
    path = request.out / SPILL / _FILE
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with write_whole(path, secret=True) as file:
        file.sink.write(json.dumps(content).encode())


def read_first_look(request: ScrutinyRequest, given: tuple[Dataset, ...], now: datetime) -> FirstLook | None:
    """Return what a run that was broken off knew, if it was asked the same; what it did after that is removed."""
    try:
        content = json.loads((request.out / SPILL / _FILE).read_bytes())
        began = datetime.fromisoformat(content["at"])
        if content["asked"] != _hash_request(request, given) or now - began > _VALID:
            return None
        summary = None if content["summary"] is None else _read_summary(content["summary"])
        made = [open_dataset(path, "inventory") for path in content["made"]]
        sampled = None if content["sampled"] is None else msgspec.convert(content["sampled"], Sampled)
        if sampled is not None:
            sampled.open()
        open_dataset(request.out / STORE, "catalog")
        if content["files"] != _hash_files(request.out, content["answers"]):
            return None
    except (OSError, ValueError, KeyError, DatasetError):
        # Whatever of it is damaged, or gone: a new run sees it all anew.
        return None
    for table in ("findings", "verdicts", "missing", "wiped", "reads"):
        for pattern in _LATER:
            for path in (request.out / table).glob(pattern):
                path.unlink()
    for folder in (request.out / SPILL).glob("look-*"):
        remove_tree(folder)
    bookies = AskedBookies(
        (*given, *made),
        given,
        summary,
        content["renames"],
        content["unresolved"],
        tuple(content["known"]),
        tuple(content["absent"]),
        sampled,
    )
    return FirstLook(began, Layout(content["layout"]), tuple(content["gaps"]), bookies, content["answers"])


def goes_on_with(request: ScrutinyRequest, opened: OpenStore) -> bool:
    """Whether a store is still of the cluster that the run which was broken off captured."""
    return is_of_cluster(open_dataset(request.out / STORE, "catalog"), read_instance_id(opened.store, opened.root))


def _hash_files(out: DatasetPlace, answers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the hash of each file that tasks wrote."""
    names = [name for answer in answers for kind in ("suspects", "compared") for name in answer[kind].values()]
    names += [answer["vanished"]["file"] for answer in answers if answer["vanished"]]
    names += [part["file"] for answer in answers for part in answer["parts"].values()]
    hashes = {}
    for name in names:
        hashes[name] = hashlib.sha256((out / name).read_bytes()).hexdigest()
    return hashes


def _read_summary(content: Mapping[str, Any]) -> WireSummary:
    results = tuple(BookieResult(**{**fields, "kind": AskedKind(fields["kind"])}) for fields in content["bookies"])
    return WireSummary(content["listed"], content["scoped"], results, content["unresolved"])


def _hash_request(request: ScrutinyRequest, given: Sequence[Dataset]) -> str:
    """Return what tells apart runs whose first look may differ."""
    parts = (
        __version__, request.uri, request.share, request.demands, str(request.since), request.suppressions,
        request.wire is None, sorted(request.aliases.items()), request.sample_reads,
        [inventory.digest for inventory in given],
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()
