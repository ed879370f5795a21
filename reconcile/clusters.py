"""Which cluster a source is of: two sources of two clusters are never put together.

Clusters may have bookies of the same names and ledgers of the same ids, so a foreign snapshot looks like one of ours.
Only the instance id tells them apart: a store has it in INSTANCEID, a bookie in its cookie. Old clusters have none:
where a source names none, nothing is refused, and it is said.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs import cookie, store
from recovery.codecs.store_kind import KINDS
from recovery.dataset import Dataset, open_dataset
from recovery.errors import FormatError, InputError
from recovery.model.ids import is_bookie_id

if TYPE_CHECKING:
    from backends.protocols import MetadataStore


@dataclass(frozen=True, slots=True)
class InstanceSource:
    """One source, and the instance id that it names.

    Attributes:
        name: for people: what it is, and where.
        instance_id: None: it names none.
    """

    name: str
    instance_id: str | None


def decode_named(raw: bytes | None) -> str | None:
    """Return the instance id that INSTANCEID names; None where it is absent or names none."""
    try:
        return store.decode_instance_id(raw) if raw is not None else None
    except FormatError:
        return None


def read_instance_ids(source: "MetadataStore", root: str) -> Iterator[tuple[str, str]]:
    """Yield the keys that name an instance id under a ledgers root, each with that; a store has one at most.

    Raises:
        BackendError: the store failed.
    """
    for kind in KINDS:
        key = root.rstrip("/") + kind.places.instance_id
        stored = source.get(key)
        instance_id = decode_named(None if stored is None else stored.value)
        if instance_id is not None:
            yield key, instance_id


def read_cookie_instances(cookies: Mapping[str, bytes]) -> dict[str, list[str]]:
    """Return the instance ids that cookies name, each with the bookies whose cookies do.

    Args:
        cookies: bookie to the bytes of its cookie; one that cannot be read names nothing.
    """
    named: dict[str, list[str]] = {}
    for bookie, raw in sorted(cookies.items()):
        try:
            instance_id = cookie.decode(raw).instance_id
        except FormatError:
            continue
        if instance_id is not None:
            named.setdefault(instance_id, []).append(bookie)
    return named


def of_catalog(name: str, sources: pa.Table, nodes: pa.Table) -> InstanceSource:
    """Return a catalog as a source: by its INSTANCEID, without one by its cookies, where these agree.

    Args:
        name: for people.
        sources: CATALOG_SOURCES.
        nodes: CATALOG_NODES.
    """
    given = sources["instance_id"].drop_null().to_pylist()
    if given:
        return InstanceSource(name, given[0])
    rows = nodes.filter(pc.equal(nodes["kind"], "cookie")).select(["path", "raw"]).to_pylist()
    named = list(read_cookie_instances({row["path"]: row["raw"] for row in rows}))
    return InstanceSource(name, named[0] if len(named) == 1 else None)


def list_named(catalog: Dataset) -> frozenset[str]:
    """Return every instance id that a catalog names, in INSTANCEID and in cookies.

    They are more than one where somebody initialised the store again: its bookies' cookies are still of this cluster.
    """
    sources = catalog.read("sources", columns=["instance_id"])
    nodes = catalog.read("nodes", columns=["path", "kind", "raw"])
    rows = nodes.filter(pc.equal(nodes["kind"], "cookie")).select(["path", "raw"]).to_pylist()
    in_cookies = read_cookie_instances({row["path"]: row["raw"] for row in rows})
    return frozenset([*sources["instance_id"].drop_null().to_pylist(), *in_cookies])


def of_bookies(bookies: pa.Table) -> list[InstanceSource]:
    """Return bookies as sources, those that name the same cluster as one; BOOKIES in."""
    named: dict[str | None, list[str]] = {}
    for row in bookies.select(["bookie", "instance_id"]).to_pylist():
        named.setdefault(row["instance_id"], []).append(row["bookie"])
    return [
        InstanceSource(f"bookie {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else ""), instance_id)
        for instance_id, names in sorted(named.items(), key=lambda item: item[0] is None)
    ]


def require_one(sources: Iterable[InstanceSource]) -> None:
    """Refuse sources of two clusters; the first that names an instance id is whose cluster the others must be of.

    Raises:
        InputError: two name different ones; both are named, and where they stand.
    """
    known = [source for source in sources if source.instance_id is not None]
    for source in known[1:]:
        if source.instance_id != known[0].instance_id:
            problem = f"is of cluster instance {source.instance_id}, {known[0].name} is of {known[0].instance_id}"
            raise InputError(source.name, problem, "leave it out, or name the one of this cluster")


def is_of_cluster(captured: Dataset, now: str) -> bool:
    """Whether a store, with this instance id by now, is still of the cluster that was captured; unless a name lacks."""
    named = captured.read("sources", columns=["instance_id"])["instance_id"].drop_null().to_pylist()
    return not now or not named or now in named


def require_of_cluster(
    catalog: Dataset, uri: str, inventories: Sequence[Dataset] = (), others: Sequence[InstanceSource] = ()
) -> None:
    """Refuse what is put together with a store, and is of a cluster that the store names nowhere.

    Args:
        catalog: of the store.
        uri: its name.
        inventories: of bookies.
        others: than these.

    Raises:
        InputError: one is of another cluster; both ids are named.
    """
    named = list_named(catalog)
    given = [inventory.read("bookies", columns=["bookie", "instance_id"]) for inventory in inventories]
    for source in (*(of_bookies(pa.concat_tables(given)) if given else ()), *others):
        if named and source.instance_id is not None and source.instance_id not in named:
            problem = f"is of cluster instance {source.instance_id}, {uri} is of {' and '.join(sorted(named))}"
            raise InputError(source.name, problem, "leave it out, or name the one of this cluster")


def name_earlier(catalog: Dataset, earlier: Dataset | None) -> list[InstanceSource]:
    """Return the clusters that an earlier catalog of a store names, unless the store names one of them."""
    instances = list_named(earlier) if earlier is not None else frozenset[str]()
    if earlier is None or instances & list_named(catalog):
        return []
    return [InstanceSource(f"the run before, with {earlier.path},", instance) for instance in sorted(instances)]


def nameless(sources: Iterable[InstanceSource]) -> list[str]:
    """Return the sources that name no instance id: nothing shows of which cluster they are."""
    return [source.name for source in sources if source.instance_id is None]


def open_inventories(paths: Sequence[str]) -> tuple[Dataset, ...]:
    """Open inventories and see that they are of different bookies of one cluster.

    Raises:
        DatasetError: one is not a whole inventory.
        InputError: a bookie comes twice or has an id that is none, or two clusters are mixed.
    """
    inventories = tuple(open_dataset(path, "inventory") for path in paths)
    bookies: dict[str, str] = {}
    instances: dict[str, str] = {}
    for dataset in inventories:
        for row in dataset.read("bookies", columns=["bookie", "instance_id"]).to_pylist():
            if not is_bookie_id(row["bookie"]):
                raise InputError(dataset.path, f"is of {row['bookie']!r}, no bookie id", "collect the bookie again")
            if row["bookie"] in bookies:
                problem = f"holds bookie {row['bookie']}, and so does {bookies[row['bookie']]}"
                raise InputError(dataset.path, problem, "give each bookie's newest inventory once")
            bookies[row["bookie"]] = dataset.path
            if row["instance_id"] is not None:
                instances.setdefault(row["instance_id"], dataset.path)
    if len(instances) > 1:
        (first, first_path), (second, second_path) = list(instances.items())[:2]
        problem = f"is of cluster instance {second}, {first_path} is of {first}"
        raise InputError(second_path, problem, "recover one cluster at a time")
    return inventories
