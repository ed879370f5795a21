"""A plan changed by a person: a new plan with a new hash. No store is touched.

edit                    the new plan
drop LEDGER             writes nothing for it; it waits for a person, so no cookies
accept the loss         the same, or removes its hold; settled, so cookies
choose LEDGER=LABEL     writes the alternative of that name
rights                  names the ACL of every key that is created
replace an instance id, a cookie     replaces what the captured store has, by its version, with the bookies' own
replace below PATH      replaces nodes of upper layers that the captured store has, by version, with the snapshot's
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile import clusters
from reconcile.errors import Advice, PlanError, Remedy
from reconcile.plan import alternatives
from reconcile.plan.actions import KEEP, LEAVE, REUSE_LOCK, Guard, PlanPhase
from reconcile.plan.entry_shares import count_entries
from reconcile.plan.manifest import PlanManifest, read_plan_manifest, write_plan_manifest
from reconcile.plan.plan_glance import require_hashes, require_rows
from reconcile.plan.plan_hash import bucket_hashes, with_ids
from reconcile.plan.plan_reader import (
    STORE,
    SYSTEM,
    list_subtree_ranges,
    name_subtree_part,
    open_captured_store,
)
from reconcile.plan.rewriting import Rewriting
from reconcile.plan.upper_layers.node_edits import NodeEditor, NodeWrite
from reconcile.rules import holds
from recovery.codecs import ledger_metadata, store
from recovery.dataset import Dataset, prepare
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import NO_ENTRY, LedgerState
from recovery.place import DatasetPlace, copy_tree, to_place


@dataclass(frozen=True, slots=True)
class Edits:
    """What is changed in a plan.

    Attributes:
        drop: ledgers of which nothing is written; they wait for a person.
        accept_loss: ledgers that somebody accepts to lose: the bookies delete them.
        choose: ledger → label of the alternative that is written.
        acl: of everything that is created.
        acl_of: catalog whose ACLs everything that is created gets; where it has none, the commonest of its kind.
        replace_instance_id: the captured store's instance id is replaced by the bookies' own.
        replace_cookies: bookies whose cookie in the captured store is replaced by their own.
        replace_below: paths: nodes of upper layers at and below them are replaced by the snapshot's.
        adopt: ledger → topic whose record names it from now on.
        named: ledger → whose it is, of those that other nodes name from now on.
        nodes: what makes that so: path in the store → what is there.
    """

    drop: frozenset[LedgerId] = frozenset()
    accept_loss: frozenset[LedgerId] = frozenset()
    choose: Mapping[LedgerId, str] = field(default_factory=dict)
    acl: str | None = None
    acl_of: Dataset | None = None
    replace_instance_id: bool = False
    replace_cookies: frozenset[str] = frozenset()
    replace_below: frozenset[str] = frozenset()
    adopt: Mapping[LedgerId, str] = field(default_factory=dict)
    named: Mapping[LedgerId, str] = field(default_factory=dict)
    nodes: Mapping[str, NodeWrite] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """Each as a line, for the new plan's manifest and for people."""
        return [
            *(f"dropped {ledger}" for ledger in sorted(self.drop, key=str)),
            *(f"loss of {ledger} accepted" for ledger in sorted(self.accept_loss, key=str)),
            *(f"for {ledger} chosen: {label}" for ledger, label in sorted(self.choose.items(), key=str)),
            *([f"rights {self.acl}"] if self.acl is not None else []),
            *([f"rights as in {self.acl_of.path}, {self.acl_of.digest}"] if self.acl_of is not None else []),
            *(["the store's instance id is replaced"] if self.replace_instance_id else []),
            *(f"the store's cookie of {bookie} is replaced" for bookie in sorted(self.replace_cookies)),
            *(f"what the store has at and below {path} is replaced" for path in sorted(self.replace_below)),
            *(f"ledger {ledger} appended to {topic}" for ledger, topic in sorted(self.adopt.items(), key=str)),
            *(f"ledger {ledger} named by the {owner}" for ledger, owner in sorted(self.named.items(), key=str)),
        ]


def edit_plan(dataset: Dataset, edits: Edits, out: DatasetPlace) -> PlanManifest:
    """Write a plan again with some of its actions changed; return the manifest of the new one, which has its own hash.

    Args:
        dataset: the plan, which stays as it is.
        edits: what to change.
        out: a new folder; it will hold passwords.

    Raises:
        PlanError: the plan is not what its hash was made of, or has nothing that an edit names.
        DatasetError: a file of the plan is damaged, or `out` cannot be written.
    """
    manifest_before = read_plan_manifest(dataset)
    if manifest_before.binding.waves:
        raise PlanError(dataset.path, "was cut into waves", "edit the plan that it was cut from, then cut it again")
    hashes = require_hashes(dataset)
    prepare(out, "plan", secret=True)
    run = _Editor(dataset, edits)
    rewriting = Rewriting(dataset, out, hashes)
    rows = dataset.read("actions", buckets=SYSTEM)
    require_rows(dataset.path, bucket_hashes(with_ids(rows)), hashes.actions, SYSTEM)
    system = run.system(rows)
    rewriting.hashes.actions.update(bucket_hashes(system))
    early = pa.array(system["seq"].to_numpy() >> 48 < PlanPhase.LEDGERS)
    rewriting.write("actions", "system-first", system.filter(early))
    rewriting.edit_actions(
        run.touches,
        lambda rows, buckets: run.ledgers(rows, dataset.read("reconstruction", buckets=buckets), buckets),
    )
    rewriting.edit_ledgers(run.names, lambda rows, _: run.outcomes(rows))
    for buckets in run.nodes.list_ranges(list_subtree_ranges(dataset)):
        rows = dataset.read("actions", buckets=buckets)
        require_rows(dataset.path, bucket_hashes(with_ids(rows)), hashes.actions, buckets)
        rows = with_ids(run.nodes.edit(rows, buckets))
        rewriting.hashes.actions.update(bucket_hashes(rows))
        rewriting.write("actions", name_subtree_part(buckets), rows)
    rewriting.write("actions", "system-last", system.filter(pc.invert(early)))
    run.require_all_found()
    for name in ("findings", "sides"):
        rewriting.take_over(name)
    candidates = rewriting.drop_candidates({*edits.adopt, *edits.named})
    store_folder = to_place(dataset.path) / STORE
    if store_folder.is_dir():
        copy_tree(store_folder, out / STORE)
    sums = {name: run.changed[name] + run.nodes.changed[name] for name in {*run.changed, *run.nodes.changed}}
    changed = {name: getattr(manifest_before.counts, name) + change for name, change in sums.items()}
    counts = replace(manifest_before.counts, **changed, actions=sum(part.rows for part in rewriting.parts["actions"]))
    reasons, doubts = (
        dict(sorted((Counter(before) + changes).items()))
        for before, changes in ((manifest_before.reasons, run.reasons), (manifest_before.doubts, run.doubts))
    )
    binding = replace(
        manifest_before.binding,
        edited_from=manifest_before.hash,
        edits=(*manifest_before.binding.edits, *edits.texts),
        # What waited before still does, unless every one of them was settled now.
        cookies_held_back=counts.waiting > 0,
    )
    subtrees = run.nodes.count(manifest_before.subtrees)
    manifest = replace(
        manifest_before,
        counts=counts,
        binding=binding,
        reasons=reasons,
        doubts=doubts,
        subtrees=subtrees,
        candidates=candidates,
        bookies=tuple(
            replace(known, planned=known.compare(run.replaced_cookies.get(known.bookie)))
            if known.bookie in run.replaced_cookies
            else known
            for known in manifest_before.bookies
        ),
    )
    return write_plan_manifest(out, manifest, rewriting.parts, rewriting.hashes)


def _require_same_cluster(dataset: Dataset, acl_of: Dataset) -> None:
    """Refuse the ACLs of another cluster than the plan's.

    Raises:
        InputError: the catalog is of another.
    """
    bound = [
        clusters.InstanceSource(f"the plan {dataset.path}", instance_id)
        for instance_id in read_plan_manifest(dataset).binding.instance_ids
    ]
    nodes = acl_of.read("nodes", columns=["path", "kind", "raw"])
    clusters.require_one([*bound, clusters.of_catalog(acl_of.path, acl_of.read("sources"), nodes)])


class _Editor:
    """The edits of one plan, bucket range by bucket range."""

    def __init__(self, dataset: Dataset, edits: Edits) -> None:
        self._edits = edits
        self._path = dataset.path
        self._layout = store.Layout(read_plan_manifest(dataset).binding.layout or "")
        self._places = store.places(self._layout)
        self._captured = open_captured_store(dataset)
        self._named = {*edits.drop, *edits.accept_loss, *edits.choose}
        self._found: set[LedgerId] = set()
        if edits.acl_of is not None:
            _require_same_cluster(dataset, edits.acl_of)
        self._common = _find_common_acls(edits.acl_of) if edits.acl_of is not None else {}
        self._outcome: dict[LedgerId, str] = {}
        self._deleted: set[LedgerId] = set()
        self._counted: set[LedgerId] = set()
        self._lost: set[LedgerId] = set()
        self._chosen: dict[LedgerId, tuple[bytes, str]] = {}
        self._highest: dict[LedgerId, int] = {}
        self.nodes = NodeEditor(edits.replace_below, edits.acl, edits.nodes)
        self.replaced_cookies: dict[str, bytes] = {}
        self.changed: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.doubts: Counter[str] = Counter()
        twice = [x for x in self._named if sum(x in edit for edit in (edits.drop, edits.accept_loss, edits.choose)) > 1]
        if twice:
            raise PlanError(str(twice[0]), "two edits name it", "name one")

    def touches(self, buckets: range) -> bool:
        """Whether any action of ledgers of a bucket range changes."""
        return self._edits.acl is not None or self._edits.acl_of is not None or self.names(buckets)

    def names(self, buckets: range) -> bool:
        """Whether an edit names a ledger of a bucket range."""
        return any(ledger.bucket in buckets for ledger in self._named)

    def require_all_found(self) -> None:
        """Refuse edits of ledgers that the plan says nothing of."""
        for ledger in sorted(self._named - self._found, key=str):
            raise PlanError(self._path, f"has nothing of ledger {ledger} to edit", "see it: bkmeta explain LEDGER")
        for path in sorted(self._edits.replace_below - self.nodes.replaced):
            problem = f"leaves no node at or below {path} as the store has it"
            raise PlanError(self._path, problem, "see which nodes differ: bkmeta plan show PLAN")

    def system(self, rows: pa.Table) -> pa.Table:
        """Edit the actions of no ledger."""
        replaced = {self._places.instance_id} if self._edits.replace_instance_id else set()
        replaced |= {f"{self._places.cookies}/{bookie}" for bookie in self._edits.replace_cookies}
        listed = rows.to_pylist()
        if replaced:
            stored = self._read_stored_nodes(replaced)
            for key in sorted(replaced):
                row = next((row for row in listed if row["key"] == key), None)
                if row is None or key not in stored:
                    lacks = "no action for it" if row is None else "no such node in the store that it was made for"
                    raise PlanError(key, f"the plan has {lacks}", "replace only what both have")
                if stored[key]["raw"] != row["value"]:
                    row.update(op="replace", expects=stored[key]["version"], before=stored[key]["raw"])
                if row["kind"] == "cookie":
                    self.replaced_cookies[key.removeprefix(f"{self._places.cookies}/")] = row["value"]
        acl_of = self._read_node_acls()
        for row in listed:
            if row["op"] not in ("replace", "remove"):
                row["acl"] = self._edits.acl or acl_of.get(row["key"]) or self._common.get(row["kind"]) or row["acl"]
        return with_ids(pa.Table.from_pylist(listed, schema=tables.ACTIONS))

    def _read_stored_nodes(self, wanted: set[str]) -> dict[str, Any]:
        if self._captured is None:
            raise PlanError(self._path, "was made without the store", Remedy(Advice.RECOVER_WITH_STORE))
        rows = self._captured.read("nodes", columns=["path", "raw", "version"]).to_pylist()
        return {row["path"]: row for row in rows if row["path"] in wanted}

    def _read_node_acls(self) -> dict[str, str]:
        if self._edits.acl_of is None:
            return {}
        rows = self._edits.acl_of.read("nodes", columns=["path", "acl"]).to_pylist()
        return {row["path"]: row["acl"] for row in rows if row["acl"] is not None}

    def ledgers(self, rows: pa.Table, reconstruction: pa.Table, buckets: range) -> pa.Table:
        """Edit the actions of a bucket range."""
        rows = self._set_acl(rows, buckets)
        named = {ledger for ledger in self._named if ledger.bucket in buckets}
        if named:
            # Only rows beside those that are named are taken apart: a file has tens of thousands of others.
            beside = _are_beside(rows, named)
            others, listed = rows.filter(pc.invert(beside)), rows.filter(beside).to_pylist()
            readings = alternatives.read_numbers(reconstruction, named & set(self._edits.choose))
            self._deleted |= _of_outcome(reconstruction, "deleted")
            own = reconstruction.filter(_are_beside(reconstruction, named))
            self._counted |= named & _list_ledgers(own)
            for known in own.filter(pc.is_valid(own["highest"])).select(["scope", "ledger", "highest"]).to_pylist():
                self._highest[LedgerId(known["scope"], known["ledger"])] = known["highest"]
            kept = []
            for row in listed:
                ledger = LedgerId(row["scope"], row["ledger"])
                if ledger not in named:
                    kept.append(row)
                    continue
                self._found.add(ledger)
                edited = self._edit_action(ledger, row, readings.get(ledger, {}))
                self.changed["beyond_end"] += self._ends_below(ledger, edited) - self._ends_below(ledger, row)
                if edited is not None:
                    kept.append(edited)
            kept += self._removals(named & self._edits.accept_loss, listed, buckets)
            edited_rows = pa.concat_tables([others, pa.Table.from_pylist(kept, schema=tables.ACTIONS)])
            rows = edited_rows.take(pc.sort_indices(edited_rows, [("seq", "ascending")]))
        return with_ids(rows)

    def _ends_below(self, ledger: LedgerId, action: Mapping[str, Any] | None) -> bool:
        """Whether an action writes a closed record above whose end bookies hold entries."""
        if action is None or action["op"] not in ("create", "replace"):
            return False
        record = ledger_metadata.decode(action["value"])
        end = NO_ENTRY if record.last_entry is None else record.last_entry
        return record.state is LedgerState.CLOSED and self._highest.get(ledger, NO_ENTRY) > end

    def _edit_action(
        self, ledger: LedgerId, row: dict[str, Any], readings: Mapping[str, tuple[str, int]]
    ) -> dict[str, Any] | None:
        if row["kind"] == REUSE_LOCK:
            return self._edit_reuse_lock(ledger, row)
        if row["op"] == "remove":
            problem = "an earlier edit accepted the loss of it, so its hold is removed"
            raise PlanError(str(ledger), problem, "edit the plan that was there before that edit")
        if row["op"] == LEAVE:
            return self._edit_leave(ledger, row, readings)
        was = {"create": "restored", "hold": "held", "replace": "released"}[row["op"]]
        was = "guarded" if was == "restored" and row["guard"] is not None else was
        if was != "released":
            self._lost.add(ledger)
        if ledger in self._edits.choose:
            label = self._edits.choose[ledger]
            value, choice = alternatives.pick_value(ledger, label, alternatives.list_values(row, readings))
            guard = alternatives.find_guard(label) or row["guard"]
            made = "restored" if guard is None else "guarded"
            # Apply asks for replication to be off where there is any.
            self.changed["guarded_by_names"] += (guard == Guard.NAMED) - (row["guard"] == Guard.NAMED)
            if _is_hold(row["before"]):
                self._outcome[ledger] = made
            elif was not in ("released", made):
                self.changed.update({was: -1, made: 1})
                self._outcome[ledger] = made
                self._chosen[ledger] = value, alternatives.find_words(row, label)
            return {
                **row,
                "op": "create" if row["op"] == "hold" else row["op"],
                "value": value,
                "choice": choice,
                "guard": guard,
            }
        self.changed[was] -= 1
        self.changed["guarded_by_names"] -= row["guard"] == Guard.NAMED
        if was == "released" and ledger in self._edits.drop:
            # What the store has stays as it is.
            if _is_hold(row["before"]):
                self.changed["held_in_store"] += 1
                self._outcome[ledger] = "held"
            return None
        if ledger in self._edits.accept_loss:
            self.changed["accepted_loss"] += 1
            self._outcome[ledger] = "accepted_loss"
            if was != "released":
                return None
            return {**row, "op": "remove", "value": None, "acl": None, "guard": None, "choice": 0}
        self.changed["waiting"] += 1
        self._outcome[ledger] = "waiting"
        return None

    def _edit_reuse_lock(self, ledger: LedgerId, row: dict[str, Any]) -> dict[str, Any] | None:
        """Leave a lock out that keeps the older ledger of an id, whose loss is accepted; the younger one stays."""
        if ledger not in self._edits.accept_loss:
            problem = "is in the store, and two ledgers have the id"
            raise PlanError(str(ledger), problem, "export the older one, and accept its loss")
        if row["op"] == KEEP:
            self.changed["reuse_locks"] -= 1
            return None
        self.changed["left_alone"] -= row["op"] == LEAVE
        return {**row, "op": "remove"}

    def _edit_leave(
        self, ledger: LedgerId, row: dict[str, Any], readings: Mapping[str, tuple[str, int]]
    ) -> dict[str, Any] | None:
        """Edit an action that writes nothing: of what was deleted, cannot be read, or is held in the store."""
        replaces, hold = row["expects"] is not None, _is_hold(row["before"])
        # What the store has is not counted as deleted, whoever says that it was.
        deleted = ledger in self._deleted and not replaces
        if ledger in self._edits.choose:
            label = self._edits.choose[ledger]
            value, choice = alternatives.pick_value(ledger, label, alternatives.list_values(row, readings))
            guard = alternatives.find_guard(label)
            self.changed["guarded_by_names"] += guard == Guard.NAMED
            made = "restored" if guard is None else "guarded"
            self.changed["released" if replaces else made] += 1
            # What neither bookies nor the store have was no ledger of the plan until now.
            is_new = not replaces and ledger not in self._counted
            self.changed.update(deleted=-deleted, held_in_store=-hold, left_alone=-1, ledgers=is_new)
            if deleted or hold:
                self._outcome[ledger] = made
            if deleted:
                self._lost.add(ledger)
                self._chosen[ledger] = value, alternatives.find_words(row, label)
            op = "replace" if replaces else "create"
            return {**row, "op": op, "value": value, "choice": choice, "guard": guard}
        if ledger in self._edits.accept_loss and deleted:
            self.changed.update(deleted=-1, accepted_loss=1, left_alone=-1)
            self._outcome[ledger] = "accepted_loss"
            return None
        if ledger in self._edits.accept_loss and hold:
            self.changed.update(held_in_store=-1, accepted_loss=1, left_alone=-1)
            self._outcome[ledger] = "accepted_loss"
            return {**row, "op": "remove"}
        return row

    def _removals(
        self, ledgers: set[LedgerId], listed: Sequence[Mapping[str, Any]], buckets: range
    ) -> list[dict[str, Any]]:
        """Remove the holds that the captured store has of ledgers whose loss is accepted."""
        open_ones = ledgers - {LedgerId(row["scope"], row["ledger"]) for row in listed}
        if not open_ones or self._captured is None:
            return []
        stored = self._captured.read("ledgers", buckets=buckets)
        stored_holds = stored.filter(pa.array(holds.is_open_hold(stored))).select(
            ["bucket", "scope", "ledger", "raw", "version"]
        )
        removals: list[dict[str, Any]] = []
        for row in stored_holds.to_pylist():
            ledger = LedgerId(row["scope"], row["ledger"])
            if ledger in open_ones:
                self._found.add(ledger)
                self.changed.update(held_in_store=-1, accepted_loss=1)
                self._outcome[ledger] = "accepted_loss"
                used = [action["seq"] & 0xFFFF_FFFF for action in listed if action["bucket"] == row["bucket"]]
                number = 1 + max([*used, *(other["seq"] & 0xFFFF_FFFF for other in removals), -1])
                removals.append(
                    {
                        **{name: row[name] for name in ("bucket", "scope", "ledger")},
                        "id": b"",
                        "seq": int(PlanPhase.LEDGERS) << 48 | row["bucket"] << 32 | number,
                        "wave": 0,
                        "op": "remove",
                        "kind": "ledger",
                        "key": store.ledger_key(self._layout, ledger),
                        "expects": row["version"],
                        "before": row["raw"],
                        "choice": 0,
                        "alternatives": [],
                    }
                )
        return removals

    def _set_acl(self, rows: pa.Table, buckets: range) -> pa.Table:
        if self._edits.acl is not None:
            acl: Any = pa.scalar(self._edits.acl, pa.string())
        elif self._edits.acl_of is None:
            return rows
        else:
            known = self._edits.acl_of.read("ledgers", buckets=buckets, columns=["scope", "ledger", "acl"])
            names = ["scope", "ledger"]
            numbered = rows.select(names).append_column("at", pa.array(np.arange(rows.num_rows)))
            joined = numbered.join(known, names, join_type="left outer").sort_by("at")
            acl = pc.coalesce(joined["acl"], pa.scalar(self._common.get("ledger"), pa.string()), rows["acl"])
        made = pc.is_in(rows["op"], pa.array(["create", "hold"]))
        index = tables.ACTIONS.get_field_index("acl")
        return rows.set_column(index, tables.ACTIONS.field(index), pc.if_else(made, acl, rows["acl"]))

    def outcomes(self, rows: pa.Table) -> pa.Table:
        """Edit what the plan says became of its ledgers."""
        if not self._outcome:
            return rows
        pairs = zip(rows["scope"].to_pylist(), rows["ledger"].to_pylist(), strict=True)
        changed = {place: ledger for place, pair in enumerate(pairs) if (ledger := LedgerId(*pair)) in self._outcome}
        if not changed:
            return rows
        outcome = rows["outcome"].to_pylist()
        for place, ledger in changed.items():
            outcome[place] = self._outcome[ledger]
        edited = _set(rows, "outcome", outcome)
        self._move_shares(rows, edited, {place: x for place, x in changed.items() if x in self._lost})
        return edited

    def _move_shares(self, before: pa.Table, after: pa.Table, places: Mapping[int, LedgerId]) -> None:
        """Count the entries and the reasons of lost ledgers by what becomes of them now."""
        was, now = (rows.take(pa.array(list(places), pa.int64())) for rows in (before, after))
        ends, holes = now["last_entry"].to_pylist(), now["holes"].to_pylist()
        for place, (ledger, highest) in enumerate(zip(places.values(), now["highest"].to_pylist(), strict=True)):
            if ledger in self._chosen:
                readable = alternatives.count_readable(*self._chosen[ledger], -1 if highest is None else highest)
                ends[place], holes[place] = readable - 1, None
        now = _set(_set(now, "last_entry", ends), "holes", holes)
        for rows, sign in ((was, -1), (now, 1)):
            for share, count in count_entries(rows).items():
                self.changed[f"entries_{share}"] += sign * count
            for outcome, reason in zip(rows["outcome"].to_pylist(), rows["reason"].to_pylist(), strict=True):
                if reason is not None:
                    self.reasons[reason] += sign * (outcome == "held")
                    self.doubts[reason] += sign * (outcome == "guarded")


def _set(rows: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    """Return rows of RECONSTRUCTION with other values of a column."""
    index = tables.RECONSTRUCTION.get_field_index(name)
    column = tables.RECONSTRUCTION.field(index)
    return rows.set_column(index, column, pa.array(values, column.type))


def _find_common_acls(catalog: Dataset) -> dict[str, str]:
    """Return, for each kind of action, the ACL that most of its keys have in a catalog.

    Raises:
        PlanError: the catalog has no ACLs.
    """
    counters: dict[str, Counter[str]] = {}
    for table in catalog.batches("ledgers"):
        counted = pc.value_counts(table["acl"].drop_null()).to_pylist()
        counters.setdefault("ledger", Counter()).update({row["values"]: row["counts"] for row in counted})
    for row in catalog.read("nodes", columns=["kind", "acl"]).to_pylist():
        if row["acl"] is not None:
            counters.setdefault(row["kind"], Counter())[row["acl"]] += 1
    common = {kind: counter.most_common(1)[0][0] for kind, counter in counters.items() if counter}
    if not common:
        raise PlanError(catalog.path, "has no ACLs of any key", Remedy(Advice.NAME_ACL_ENTRIES))
    either = common.get("ledger") or Counter(common.values()).most_common(1)[0][0]
    kinds = ("ledger", "node", "layout", "instance_id", "cookie", "generator")
    return {kind: common.get(kind, either) for kind in kinds}


def _is_hold(raw: bytes | None) -> bool:
    """Say whether bytes of the store are a hold of ours."""
    return bool(holds.is_open_hold(ledger_metadata.decode_columns(pa.array([raw], pa.binary())))[0])


def _of_outcome(reconstruction: pa.Table, outcome: str) -> set[LedgerId]:
    return _list_ledgers(reconstruction.filter(pc.equal(reconstruction["outcome"], outcome)))


def _list_ledgers(rows: pa.Table) -> set[LedgerId]:
    return {LedgerId(row["scope"], row["ledger"]) for row in rows.select(["scope", "ledger"]).to_pylist()}


def _are_beside(rows: pa.Table, named: set[LedgerId]) -> pa.ChunkedArray:
    """Say which rows are of the buckets of some ledgers."""
    return pc.is_in(rows["bucket"], pa.array([*{ledger.bucket for ledger in named}], rows["bucket"].type))
