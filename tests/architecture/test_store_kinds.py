"""Kinds of stores are told apart by their records alone: an adapter in `backends`, and `recovery.codecs.store_kind`."""

import ast
from collections.abc import Iterator
from typing import Final

from backends import registry
from recovery.codecs.store import FORMS, Layout
from recovery.codecs.store_kind import KINDS, guess_kind, kind_of
from tests.support.paths import ROOT

RECORDS: Final = frozenset({"recovery/codecs/store_kind.py", "recovery/codecs/store.py"})
"""What knows the kinds of stores by name."""
FILES: Final = frozenset(
    {
        "recovery/inspect/file_kinds.py",
        "recovery/inspect/store_file.py",
        "reconcile/snapshots.py",
    }
)
"""What reads files of stores by their formats."""
RIGHTS: Final = frozenset({"reconcile/stores.py", "reconcile/jobs/changes/freeze.py"})
"""What names identities as ZooKeeper does, where the kind of store has rights of single keys."""
POINTS: Final = frozenset({"reconcile/jobs/undelete/request.py", "reconcile/cli/commands/undelete.py"})
"""What reads a point in time as ZooKeeper's files name it."""
SCHEMES: Final = frozenset({"zk", "zk+", "zkfiles", "etcd", "etcdfile", "metadata-store", "zookeeper"})


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for package in ("recovery", "reconcile"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if "_pb" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def _strings(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def _branches(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what compares with a name of a kind of store, or asks how a URI begins."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            said = [*_strings(node), *(part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute))]
            said += [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
            if any(word in SCHEMES | {"ETCD"} for word in said):
                yield node
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "startswith"
            and any(word.partition(":")[0] in SCHEMES for word in _strings(node))
        ):
            yield node


def test_nothing_else_asks_for_a_kind_of_store_by_its_name() -> None:
    """Code asks a record what a store can do; only what reads files by their formats compares kinds."""
    allowed = {*RECORDS, *FILES}
    branches = [f"{name}:{node.lineno}" for name, tree in _trees() if name not in allowed for node in _branches(tree)]
    # Where BookKeeper's keys are inside of Pulsar's: a scheme of URIs, not a kind of store.
    assert [place for place in branches if not place.startswith("reconcile/stores.py:")] == []


def test_adapters_are_imported_through_the_registry() -> None:
    """Of the folders of stores, only formats of files and names of identities are used from elsewhere."""
    allowed = {*FILES, *RIGHTS, *POINTS}
    importers = {
        name
        for name, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("backends.zookeeper", "backends.etcd", "backends.zkfiles"))
    }
    assert sorted(importers - allowed) == []


def test_every_layout_has_its_forms_and_one_kind_of_store() -> None:
    """A layout that is added without a record is noticed here, not in a store."""
    assert set(FORMS) == set(Layout)
    assert sorted(layout for kind in KINDS for layout in kind.layouts) == sorted(Layout)
    assert all(layout in kind_of(layout).layouts for layout in Layout)


def test_every_kind_has_an_adapter_that_reads_its_uri() -> None:
    """The URI that a record makes is one of a running store of that kind, with the record's port."""
    for kind in KINDS:
        uri = kind.uri.format(layout=kind.layouts[0], hosts="host", folder="cluster")
        address = registry.parse_store_uri(uri)
        assert address.is_live
        assert kind_of(address.layout_hint) is kind
        assert address.hosts == f"host:{kind.port}"
        assert guess_kind(uri) is kind


def test_files_are_copies_of_a_kind_that_is_read() -> None:
    """Each kind of files names the kind of the live store that wrote them."""
    running = [kind.uri.format(layout=kind.layouts[0], hosts="host", folder="cluster") for kind in KINDS]
    for uri in ("zkfiles:///files", "etcdfile:///file.db?root=/bk"):
        address = registry.parse_store_uri(uri)
        assert not address.is_live
        assert address.live_kind in {registry.parse_store_uri(live).kind for live in running}
