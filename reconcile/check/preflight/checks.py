"""Preflight: whether bookies can delete data now, from the store's names and the content of bookies.

A bookie deletes every ledger that it holds and its store does not list, at each pass of its garbage collection, without
grace. So an empty, partial, wrong or missing store that bookies can list is what is searched for first.

    CRITICAL   ledgers can be deleted now, or the store is not the one that the bookies belong to
    WARNING    something is not as it was, or as it should be
    UNDECIDED  nothing bad was seen, and something that matters could not be checked
    OK         everything that the bookies hold is listed

Source: docs/operations/safety.md.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from backends.errors import AccessDeniedError
from backends.protocols import MetadataStore, Versioned
from reconcile import clusters
from reconcile.check import listing
from reconcile.check.impact.thin_ledgers import find_thin_ledgers
from reconcile.check.preflight.gc_settings import COLLECTION_STOPS, BookieSettings, UnreadSettings
from reconcile.check.preflight.report import NamedBookie, PreflightLevel, Remark, Report, rank_remark
from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingStatement
from reconcile.rules.holds import find_without_index
from reconcile.rules.segments.member_names import require_other_names
from reconcile.words import count_noun, list_names
from reconcile.write.freezing import freeze_state
from recovery.codecs.store import UNDERREPLICATION, Layout, decode_instance_id, layout_of
from recovery.codecs.store_kind import kind_of
from recovery.dataset import Dataset, read_inventories
from recovery.errors import FormatError
from recovery.model.coverage import Coverage

MUCH: Final = 0.1
"""Share of the bookies' ledgers without a record that garbage waiting to be collected does not explain."""
_LISTING_S: Final = 20.0
_CLOCKS_APART: Final = timedelta(minutes=1)
_RECENT: Final = timedelta(days=1)
_AUDITORS: Final = f"{UNDERREPLICATION}/auditorelection"
_VOTE: Final = re.compile(r'bookieId:\s*"([^"]*)"')
_ASKED: Final = 20_000
"""Ledgers that are asked for by key because no listing names them: some seconds."""


def examine(
    store: MetadataStore,
    root: str,
    named: Layout | None,
    inventories: Sequence[Dataset],
    settings: Sequence[BookieSettings | UnreadSettings],
    *,
    now: datetime,
    listing_s: float = _LISTING_S,
    aliases: Mapping[str, str] | None = None,
) -> Report:
    """Checks a store, and compares it with what bookies hold.

    Args:
        store: only read.
        root: of the ledgers.
        named: layout that the URI names.
        inventories: of the bookies, as many as there are.
        settings: of garbage collection, as far as they could be read.
        now: aware.
        listing_s: how long ledgers are listed at most.
        aliases: other names of bookies, in records and of cookies → ids.

    Raises:
        InputError: an alias is a bookie of its own.
        UnavailableError: the store does not answer.
        DatasetError: an inventory is damaged.
    """
    return _Look(store, root, inventories, settings, now, aliases or {}).all(named, listing_s)


class _Look:
    def __init__(
        self,
        store: MetadataStore,
        root: str,
        inventories: Sequence[Dataset],
        settings: Sequence[BookieSettings | UnreadSettings],
        now: datetime,
        aliases: Mapping[str, str],
    ) -> None:
        self._store = store
        self._aliases = aliases
        self._root = root
        self._settings = settings
        self._now = now
        self._denied = False
        self._foreign = False
        self._has_layout = True
        self._inventories = inventories
        rows = read_inventories(inventories, "bookies").to_pylist()
        harms = read_inventories(inventories, "damage")
        self._remarks = [Remark.from_finding(found) for found in find_without_index(rows, harms)]
        self._about = {row["bookie"]: row for row in rows}
        self._scanned = {bookie: bool(row["complete"]) for bookie, row in self._about.items()}

    def _say(self, level: PreflightLevel, subject: str, text: str) -> None:
        """Add a remark about something good or unknown."""
        self._remarks.append(Remark(level, subject, text))

    def _find(self, category: Category, subject: str, text: str, severity: PreflightLevel | None = None) -> None:
        """Add a remark about a problem; without a severity it has the category's."""
        statements = (FindingStatement("store", subject, text, "preflight"),)
        self._remarks.append(Remark.from_finding(Finding(category, subject, statements, severity=severity)))

    def all(self, named: Layout | None, listing_s: float) -> Report:
        """Make all checks."""
        self._kind = kind_of(named)
        self._where = self._kind.places
        try:
            names = self._store.children(self._root)
        except AccessDeniedError:
            self._denied = True
            variable = self._kind.auth_variable
            self._say(PreflightLevel.UNDECIDED, "root", f"{self._root} may not be listed: set {variable} to who may")
            return self._report(root="not known")
        on_bookies = listing.list_ledgers_on_bookies(self._inventories) if self._inventories else None
        if names is None:
            return self._examine_missing(on_bookies, named)
        state = freeze_state.read_freeze_state(self._store, self._root)
        rw, ro = self._examine_registered()
        require_other_names(self._aliases, {*self._about, *rw, *ro})
        cookies = self._children(self._where.cookies) or []
        layout = self._layout(named)
        self._instance(state, cookies)
        listed = self._examine_listed(layout, listing_s)
        if layout is None and not any(name.isdigit() or name.startswith("L") for name in names):
            self._empty([], state, compared=False)
        counts = self._ledgers(listed, on_bookies, state, rw + ro, layout)
        if layout is not None and listed is not None and (rw or ro):
            self._examine_thin(layout, listed, rw, ro)
        known = sorted({self._aliases.get(name, name) for name in cookies})
        coverage = self._cover({*rw, *ro, *known})
        bookies = self._bookies(rw, ro, known)
        auditor = self._replication(state, lacking=bool(counts["ledgers_absent"]) or counts["ledgers_listed"] == 0)
        self._frozen(state)
        self._examine_deleting(bookies)
        return self._report(
            bookies=bookies,
            counts=counts | {"bookies_registered": len({*rw, *ro}), "cookies": len(cookies)},
            listed_whole=listed is not None and listed.complete,
            coverage=coverage,
            layout=layout,
            freeze=state if self._kind.has_acls else None,
            auditor=auditor,
        )

    def _report(
        self,
        *,
        bookies: tuple[NamedBookie, ...] = (),
        counts: Mapping[str, int | None] | None = None,
        listed_whole: bool = False,
        coverage: Coverage | None = None,
        layout: Layout | None = None,
        freeze: freeze_state.FreezeState | None = None,
        auditor: str | None = None,
        root: str = "present",
    ) -> Report:
        unread = tuple(settings for settings in self._settings if isinstance(settings, UnreadSettings))
        return Report(
            remarks=tuple(sorted(self._remarks, key=rank_remark)),
            bookies=bookies or self._bookies([], [], []),
            counts=counts or {},
            listed_whole=listed_whole,
            coverage=coverage or Coverage.count(self._scanned, {}),
            unread=unread,
            layout=layout,
            freeze=freeze,
            auditor=auditor,
            root=root,
            denied=self._denied,
            foreign=self._foreign,
        )

    def _examine_missing(self, on_bookies: pa.Table | None, named: Layout | None) -> Report:
        lost = "" if on_bookies is None else f", and the bookies hold {on_bookies.num_rows} ledgers"
        if not self._kind.makes_layout:
            text = f"nothing is below {self._root}{lost}: bookies that run list no ledger, and delete all now"
        else:
            text = (
                f"{self._root} does not exist{lost}. With layout longhierarchical, and with Pulsar's driver, bookies "
                "that run delete everything now; with others their passes fail"
            )
        self._find(Category.ROOT_MISSING, "root", f"{text}. Is the URI right?")
        count = None if on_bookies is None else on_bookies.num_rows
        return self._report(
            counts={"ledgers_listed": 0, "ledgers_on_bookies": count, "ledgers_absent": count},
            layout=named,
            root="missing",
        )

    # What is in the store

    def _get(self, key: str) -> Versioned | None:
        try:
            return self._store.get(self._root + key)
        except AccessDeniedError:
            self._say(PreflightLevel.UNDECIDED, "coverage", f"{self._root}{key} may not be read")
            return None

    def _children(self, key: str) -> list[str] | None:
        try:
            return self._store.children(self._root + key)
        except AccessDeniedError:
            self._say(PreflightLevel.UNDECIDED, "coverage", f"{self._root}{key} may not be listed")
            return None

    def _examine_registered(self) -> tuple[list[str], list[str]]:
        writable, read_only = self._where.registrations
        ro = self._children(read_only) or []
        return [name for name in self._children(writable) or [] if f"{writable}/{name}" != read_only], ro

    def _layout(self, named: Layout | None) -> Layout | None:
        node = self._get(self._where.layout)
        if node is None:
            self._has_layout = False
            text = "LAYOUT is missing: bookies that run go on, none can start"
            self._find(Category.STORE_INCOMPLETE, "layout", text)
            return named
        self._require_older("LAYOUT", node)
        try:
            stored = layout_of(node.value)
        except FormatError as error:
            text = f"LAYOUT cannot be read ({error.detail or error.reason})"
            self._find(Category.STORE_INCOMPLETE, "layout", text)
            return named
        if named not in (None, stored, Layout.LONGLONGHIERARCHICAL):
            text = f"LAYOUT says {stored}, the URI says {named}"
            self._find(Category.LAYOUT_DIFFERS, "layout", text, PreflightLevel.WARNING)
        return stored

    def _instance(self, state: freeze_state.FreezeState, cookies: Sequence[str]) -> None:
        known = sorted({row["instance_id"] for row in self._about.values() if row["instance_id"] is not None})
        node = self._get(self._where.instance_id)
        if node is None:
            text = "INSTANCEID is missing: bookies that run go on, none can start"
            self._find(Category.STORE_INCOMPLETE, "instance", text)
            return
        self._require_older("INSTANCEID", node)
        try:
            stored = decode_instance_id(node.value)
        except FormatError:
            self._find(Category.STORE_INCOMPLETE, "instance", "INSTANCEID cannot be read")
            return
        foreign = [instance for instance in known if instance != stored]
        severity = PreflightLevel.WARNING if state.frozen else PreflightLevel.CRITICAL
        if foreign:
            self._foreign = True
            bookies = [name for name, row in self._about.items() if row["instance_id"] in foreign]
            text = (
                f"the store is of cluster {stored}, and {list_names(bookies)} of {foreign[0]}: it was initialised "
                "again, or is another cluster's; to these bookies every ledger that is not in it is garbage"
            )
            self._find(Category.INSTANCE_ID_DIFFERS, "instance", text, severity)
        raw = {bookie: node.value for bookie in cookies if (node := self._get(f"{self._where.cookies}/{bookie}"))}
        for instance, names in clusters.read_cookie_instances(raw).items():
            if instance in (stored, *foreign):
                continue
            text = (
                f"the store is of cluster {stored}, and its cookies of {list_names(names)} are of {instance}: "
                "it was initialised again, and these bookies take every ledger that is not in it for garbage"
            )
            self._find(Category.INSTANCE_ID_DIFFERS, "instance", text, severity)

    def _is_theirs(self) -> bool:
        """Whether the store is of the cluster of every scanned bookie: then its age proves nothing.

        A restore makes LAYOUT and INSTANCEID again; who initialises a cluster again gives it another instance id.
        """
        try:
            node = self._store.get(self._root + self._where.instance_id)
        except AccessDeniedError:
            return False
        return (
            node is not None
            and bool(self._about)
            and all(row["instance_id"] is not None for row in self._about.values())
            and {(row["instance_id"] or "").encode() for row in self._about.values()} == {node.value}
        )

    def _require_older(self, name: str, node: Versioned) -> None:
        """Report a node of the store that is younger than the format of bookies that belong to the store."""
        if node.created_ms is None:
            return
        created = datetime.fromtimestamp(node.created_ms / 1000, UTC)
        formatted = {
            bookie: min(file["mtime"] for file in row["version_files"])
            for bookie, row in self._about.items()
            if row["version_files"]
        }
        older = sorted((time, bookie) for bookie, time in formatted.items() if time + _CLOCKS_APART < created)
        subject = "instance" if name == "INSTANCEID" else "layout"
        if older:
            time, bookie = older[0]
            text = (
                f"{name} was created {_time(created)}, when {bookie} had been formatted ({_time(time)}): it was made "
            )
            if self._is_theirs():
                self._say(
                    PreflightLevel.OK,
                    subject,
                    f"{text}again, as a restore does: the instance id is that of the bookies",
                )
            else:
                text += "again: by a restore, or because the cluster was initialised again"
                self._find(Category.STORE_MADE_ANEW, subject, text)
        elif not formatted and self._now - created < _RECENT:
            text = f"{name} was created {_time(created)}, less than a day ago"
            self._find(Category.STORE_MADE_ANEW, subject, text)

    def _examine_listed(self, layout: Layout | None, listing_s: float) -> listing.StoreListing | None:
        if layout is None:
            text = "the layout is not known, so no ledger can be listed: name it in the URI"
            self._say(PreflightLevel.UNDECIDED, "ledgers", text)
            return None
        listed = listing.list_ledgers(self._store, self._root, layout, within_s=listing_s)
        if listed.denied:
            self._denied = True
            denied = list_names(listed.denied)
            text = f"{denied} may not be listed: if that is a freeze, set BKMETA_ZK_AUTH to its identity"
            self._say(PreflightLevel.UNDECIDED, "ledgers", text)
        elif listed.lost:
            lost = list_names(listed.lost)
            text = f"{lost} named by the folder above, and not there when listed: the listing is not whole"
            self._say(PreflightLevel.UNDECIDED, "ledgers", text)
        elif listed.late:
            text = f"not all was listed in {listing_s:g} s, {listed.ledgers} ledgers were"
            self._say(PreflightLevel.UNDECIDED, "ledgers", text)
        return listed

    def _examine_thin(self, layout: Layout, listed: listing.StoreListing, rw: Sequence[str], ro: Sequence[str]) -> None:
        writable, read_only = self._where.registrations
        nodes = [*(f"{writable}/{name}" for name in rw), *(f"{read_only}/{name}" for name in ro)]
        sample = find_thin_ledgers(self._store, self._root, layout, listed.ids, nodes, self._aliases)
        if sample.thin:
            thin = f"{sample.thin} of {count_noun(sample.looked_at, 'ledger')} checked ({list_names(sample.names)})"
            text = (
                f"{thin} have entries that only one registered bookie has: stop no other bookie before this is repaired"
            )
            self._find(Category.LAST_COPY, "margin", text)

    # What follows from it

    def _ledgers(
        self,
        listed: listing.StoreListing | None,
        on_bookies: pa.Table | None,
        state: freeze_state.FreezeState,
        running: Sequence[str],
        layout: Layout | None,
    ) -> dict[str, int | None]:
        counts: dict[str, int | None] = {
            "ledgers_listed": None if listed is None else listed.ledgers,
            "ledgers_on_bookies": None if on_bookies is None else on_bookies.num_rows,
            "ledgers_absent": None,
        }
        if listed is None or not listed.complete:
            return counts
        if listed.ledgers == 0 and (on_bookies is None or not on_bookies.num_rows):
            self._empty([name for name in running if name not in self._about], state, compared=on_bookies is not None)
        if on_bookies is None:
            self._say(
                PreflightLevel.UNDECIDED, "ledgers", "not compared with the ledgers on bookies: no inventory was given"
            )
            return counts
        absent = listing.absent_ledgers(on_bookies, listed)
        asked = absent.slice(0, _ASKED)
        unlisted = listing.require_each(self._store, self._root, layout, asked) if layout is not None else None
        if unlisted is not None and unlisted.any():
            examples = list_names(listing.examples(asked.filter(pa.array(unlisted))))
            text = (
                f"{int(unlisted.sum())} of {asked.num_rows} ledgers that no listing names have a record all the same "
                f"({examples}): bookies, which believe listings, delete them"
            )
            self._find(Category.LISTING_INCOMPLETE, "ledgers", text)
            return counts
        counts["ledgers_absent"] = absent.num_rows
        if not absent.num_rows:
            text = f"every ledger on the scanned bookies has a record: {on_bookies.num_rows}"
            self._say(PreflightLevel.OK, "ledgers", text)
            return counts
        examples = list_names(listing.examples(absent))
        lacking = f"{absent.num_rows} of {on_bookies.num_rows} ledgers on the bookies"
        absence = f"{lacking} have no record in the store ({examples})"
        category = Category.DATA_WITHOUT_RECORD
        if listed.ledgers == 0:
            category = Category.STORE_EMPTY
            absence = f"the store is valid and EMPTY: none of {on_bookies.num_rows} ledgers on the bookies has a record"
        if state.frozen:
            text = f"{absence}; it is frozen, so the bookies cannot list it"
            self._find(category, "ledgers", text, PreflightLevel.WARNING)
        elif absent.num_rows > MUCH * on_bookies.num_rows:
            deleting = list_names(running) if running else "any bookie that runs"
            self._find(category, "ledgers", f"{absence}, and {deleting} can delete them now", PreflightLevel.CRITICAL)
        else:
            text = f"{absence}: garbage that waits to be collected, or lost metadata"
            self._find(category, "ledgers", text, PreflightLevel.WARNING)
        return counts

    def _empty(self, unseen: Sequence[str], state: freeze_state.FreezeState, *, compared: bool) -> None:
        """Report what an empty store means for bookies with unknown content."""
        if state.frozen:
            text = "the store lists no ledger; it is frozen, so the bookies cannot list it"
            self._find(Category.STORE_EMPTY, "ledgers", text, PreflightLevel.WARNING)
        elif self._kind.makes_layout and not self._has_layout:
            text = (
                f"{self._root} is EMPTY, without the LAYOUT that BookKeeper makes with it: its content was removed. "
                "Every bookie that runs deletes all its data now, registered or not. Is the URI right?"
            )
            self._find(Category.STORE_EMPTY, "ledgers", text)
        elif unseen:
            text = (
                f"the store is valid and EMPTY, and {list_names(unseen)} can delete everything that they hold now, "
                "unless they are a new cluster's and hold nothing"
            )
            self._find(Category.STORE_EMPTY, "ledgers", text)
        elif not compared:
            text = "the store lists no ledger: a bookie that runs here unregistered deletes all that it holds"
            self._find(Category.STORE_EMPTY, "ledgers", text, PreflightLevel.WARNING)

    def _cover(self, members: Collection[str]) -> Coverage:
        coverage = Coverage.count(self._scanned, {"registered, or with a cookie": members})
        if coverage.not_scanned and self._inventories:
            text = f"these bookies were not scanned, and may hold other ledgers: {list_names(coverage.not_scanned)}"
            self._say(PreflightLevel.UNDECIDED, "coverage", text)
        if coverage.not_complete:
            text = f"the disks of {list_names(coverage.not_complete)} were not read completely"
            self._say(PreflightLevel.UNDECIDED, "coverage", text)
        oldest = min((row["ended"] for row in self._about.values()), default=self._now)
        if self._now - oldest > _RECENT:
            text = f"the oldest inventory is of {_time(oldest)}; ledgers deleted since have no record either"
            self._say(PreflightLevel.OK, "coverage", text)
        return coverage

    def _bookies(self, rw: Sequence[str], ro: Sequence[str], cookies: Sequence[str]) -> tuple[NamedBookie, ...]:
        known = [settings for settings in self._settings if isinstance(settings, BookieSettings)]
        settings_of = {settings.bookie or settings.source: settings for settings in known}
        state_of = dict.fromkeys(ro, "ro") | dict.fromkeys(rw, "rw")
        bookies = [
            NamedBookie(name, state_of.get(name, "no"), name in self._about, settings_of.get(name))
            for name in sorted({*rw, *ro, *cookies, *self._about, *settings_of})
        ]
        return tuple(sorted(bookies, key=lambda bookie: (bookie.registered == "no", bookie.wait_ms, bookie.id)))

    def _examine_deleting(self, bookies: Sequence[NamedBookie]) -> None:
        running = [bookie for bookie in bookies if bookie.registered != "no"]
        texts = [f"{bookie.id} runs ({bookie.registered}); looks for garbage {bookie.passes}" for bookie in running]
        for text in texts or ["no bookie is registered; one that runs all the same, its session lost, still deletes"]:
            self._say(PreflightLevel.OK, "registrations", text)
        over = [bookie.id for bookie in running if bookie.settings is None or bookie.settings.over_ms > 0]
        if over and not self._kind.has_replication:
            self._say(PreflightLevel.OK, "registrations", f"{COLLECTION_STOPS}: {list_names(over)}")

    def _replication(self, state: freeze_state.FreezeState, *, lacking: bool) -> str | None:
        auditor = None
        if not self._kind.has_replication:
            text = f"on {self._kind.name} there are no marks, and no auditor is elected to make any"
            self._say(PreflightLevel.OK, "replication", text)
            return None
        votes = sorted(name for name in self._children(_AUDITORS) or [] if name.startswith("V_"))
        if votes:
            vote = self._get(f"{_AUDITORS}/{votes[0]}")
            match = _VOTE.search(vote.value.decode(errors="replace")) if vote is not None else None
            auditor = match[1] if match else None
        election = f"an auditor is elected ({auditor or votes[0]})" if votes else "no auditor is elected"
        if state.replication_disabled:
            self._say(PreflightLevel.OK, "replication", f"replication is disabled; {election}")
        elif votes and (lacking or state.frozen):
            inside = [o.bookie or o.source for o in self._settings if isinstance(o, BookieSettings) and o.has_auditor]
            text = f"replication is not disabled, and {election}: at a listing that fails it ends"
            if inside:
                text += f", and takes the bookie with it where it lives in one ({list_names(inside)})"
            self._find(Category.REPLICATION_ENABLED, "replication", text)
        else:
            self._say(PreflightLevel.OK, "replication", f"replication is not disabled; {election}")
        return auditor

    def _frozen(self, state: freeze_state.FreezeState) -> None:
        if not self._kind.has_acls:
            advice = "keep the bookies stopped until apply has ended"
            self._say(
                PreflightLevel.OK, "freeze", f"{self._kind.name} cannot be frozen, its keys have no rights: {advice}"
            )
            return
        match state.state:
            case freeze_state.FreezeExtent.FROZEN | freeze_state.FreezeExtent.DELETES:
                # Without the hash of its password: a reader needs none.
                freezer = (state.identity or "").rpartition(":")[0] or "no identity that could thaw it"
                text = f"frozen, by {freezer}"
                if state.state is freeze_state.FreezeExtent.DELETES:
                    text = f"frozen for deletes only, by {freezer}: clients go on"
                self._say(PreflightLevel.OK, "freeze", text)
            case freeze_state.FreezeExtent.PARTLY:
                text = f"frozen only in part: {'; '.join(state.open)}"
                self._find(Category.PARTLY_FROZEN, "freeze", text)
            case freeze_state.FreezeExtent.THAWED:
                self._say(PreflightLevel.OK, "freeze", "not frozen")
            case freeze_state.FreezeExtent.UNKNOWN:
                self._say(
                    PreflightLevel.UNDECIDED, "freeze", f"whether it is frozen is not known: {'; '.join(state.unknown)}"
                )


def _time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")
