"""Which cluster a source is of: two of two clusters are refused with both ids, one that names none is named."""

import pyarrow as pa
import pytest

from reconcile import clusters
from reconcile.clusters import InstanceSource
from recovery.codecs.cookie import Cookie, encode
from recovery.errors import InputError
from recovery.model import tables


def nodes(*instances: str | None) -> pa.Table:
    """Cookies that name these clusters."""
    made = [
        {"path": f"/cookies/b{n}", "kind": "cookie", "version": 0,
         "raw": encode(Cookie(5, f"b{n}", ("/j",), ("/l",), None, instance))}
        for n, instance in enumerate(instances)
    ]  # fmt: skip
    return pa.Table.from_pylist(made, schema=tables.CATALOG_NODES)


def sources(instance: str | None) -> pa.Table:
    """What a catalog says of itself."""
    row: dict[str, object] = {
        "kind": "zookeeper",
        "uri": "zk://x",
        "instance_id": instance,
        "root": "present",
        "gaps": [],
    }
    return pa.Table.from_pylist([row], schema=tables.CATALOG_SOURCES)


@pytest.mark.parametrize(
    ("stored", "cookies", "named"),
    [
        ("a", ["b"], "a"),
        (None, ["b", "b", None], "b"),
        (None, ["b", "c"], None),
        (None, [None], None),
        (None, [], None),
    ],
)
def test_a_catalog_names_its_cluster(stored: str | None, cookies: list[str | None], named: str | None) -> None:
    """By INSTANCEID, else by cookies where all that name one agree."""
    assert clusters.of_catalog("c", sources(stored), nodes(*cookies)) == InstanceSource("c", named)


def test_two_clusters_are_refused_with_both_ids_and_where_they_stand() -> None:
    """The first that names one decides; what names none is passed over, and listed."""
    ours = [
        InstanceSource("bookie b1", None),
        InstanceSource("inventory b2", "a"),
        InstanceSource("snapshot zk://x", None),
    ]
    clusters.require_one(ours)
    assert clusters.nameless(ours) == ["bookie b1", "snapshot zk://x"]
    with pytest.raises(InputError) as refused:
        clusters.require_one([*ours, InstanceSource("snapshot zk://y", "b")])
    for part in ("snapshot zk://y", "instance b", "inventory b2", "of a"):
        assert part in str(refused.value)


def test_bookies_of_one_cluster_are_one_source() -> None:
    """Those that name none are one of their own, the last."""
    rows = pa.table({"bookie": ["b1", "b2", "b3"], "instance_id": ["a", None, "a"]})
    assert clusters.of_bookies(rows) == [InstanceSource("bookie b1 and 1 more", "a"), InstanceSource("bookie b2", None)]


def test_a_cookie_that_cannot_be_read_names_nothing() -> None:
    """Neither damage nor a cookie of old says of which cluster it is."""
    assert clusters.read_cookie_instances({"b1": b"?", "b2": encode(Cookie(5, "b2", ("/j",), ("/l",), None, "a"))}) == {
        "a": ["b2"]
    }
    assert clusters.decode_named(b"") is None
    assert clusters.decode_named(b"a") == "a"
