"""Who made ledgers, as their records' custom metadata says; and whose names of ledgers no listing shows.

Pulsar writes into each record which of its parts made it:

    application   pulsar
    component     managed-ledger (topics and subscriptions), schema: named in Pulsar's records
                  delayed-index-bucket: named in the properties of a subscription's record
                  compacted-ledger: named in the record of the topic's subscription `__compaction`, or in that one's own
                  ledger while it has one: then no record of the store has its name

So a compacted ledger is hidden where its topic's `__compaction` has a ledger of its own, until running bookies were
asked for the last entry of that one. A broker that unloads the topic writes the name into the record. Pravega writes
its name as the application, and its containers' records list all its ledgers. Function packages and state, and
whatever else uses the bookies, say nothing: the streams that name some of them show that these are in use, but of a
ledger that no stream names nothing shows whose it is.

Source: apache/pulsar 4.0.7, LedgerMetadataUtils, CompactedTopicImpl, ManagedCursorImpl.computeCursorProperties;
docs/formats/pulsar-records.md.
"""

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.deletes.verification.evidence import Mask
from reconcile.references import COMPACTION

_APPLICATION: Final = "application"
_COMPONENT: Final = "component"
_PULSAR: Final = "pulsar"
_LISTED: Final = pa.array(["managed-ledger", "schema", "delayed-index-bucket"])
_COMPACTED: Final = "compacted-ledger"
_COMPACTED_TOPIC: Final = "pulsar/compactedTopic"
HIDDEN: Final = (
    "a broker may keep its name where no listing shows it: have running bookies asked for it over the wire, or unload "
    "its topic (pulsar-admin topics unload), which writes the name into a record; then verify again"
)
OTHERS: Final = (
    "its record does not say who made it, or names an application whose records were not listed: name a file of what "
    "other applications refer to; an empty one says that there are none"
)
PRAVEGA: Final = "Pravega"
"""The application of Pravega's ledgers."""


def read_makers(custom: pa.ChunkedArray) -> pa.Array:
    """Return who made each ledger: a component of Pulsar, another application; null: the record does not say.

    Args:
        custom: of CATALOG_LEDGERS.
    """
    application, component = (_read_value(custom, name) for name in (_APPLICATION, _COMPONENT))
    is_pulsar = pc.fill_null(pc.equal(application, _PULSAR), fill_value=False)
    return pc.if_else(is_pulsar, pc.coalesce(component, application), application)


def find_hidden(custom: pa.ChunkedArray, owners: Iterable[str] | None = None) -> Mask:
    """Return the ledgers of parts of Pulsar whose names of ledgers are not all in its records.

    Args:
        custom: of CATALOG_LEDGERS.
        owners: of the ledgers that Pulsar's records name; None: these were not listed.
    """
    is_pulsar = pc.fill_null(pc.equal(_read_value(custom, _APPLICATION), _PULSAR), fill_value=False)
    component = _read_value(custom, _COMPONENT)
    hidden = _to_mask(pc.and_(is_pulsar, pc.invert(pc.is_in(component, value_set=_LISTED))))
    if owners is None:
        return hidden | _to_mask(
            pc.and_(is_pulsar, pc.fill_null(pc.equal(component, "delayed-index-bucket"), fill_value=False))
        )
    loaded = {owner.removeprefix(COMPACTION) for owner in owners if owner.startswith(COMPACTION)}
    topics = _read_value(custom, _COMPACTED_TOPIC).to_pylist()
    is_compacted = _to_mask(pc.fill_null(pc.equal(component, _COMPACTED), fill_value=False))
    for row in np.flatnonzero(hidden & is_compacted).tolist():
        hidden[row] = topics[row] is None or _name_topic(topics[row]) in loaded
    return hidden


def list_compacted_topics(custom: pa.ChunkedArray) -> set[str]:
    """Return the topics that some ledgers are the compacted copies of, as Pulsar's records name topics."""
    is_compacted = pc.fill_null(pc.equal(_read_value(custom, _COMPONENT), _COMPACTED), fill_value=False)
    topics = _read_value(custom, _COMPACTED_TOPIC).filter(is_compacted)
    return {_name_topic(topic) for topic in pc.drop_null(topics).to_pylist()}


def _name_topic(topic: str) -> str:
    """Return a topic as Pulsar's records name it: tenant/namespace/persistent/topic."""
    domain, separator, rest = topic.partition("://")
    if not separator:
        return topic
    above, _, name = rest.rpartition("/")
    # As Java's URLEncoder writes it.
    return f"{above}/{domain}/{quote_plus(name, safe='*').replace('~', '%7E')}"


def find_others(custom: pa.ChunkedArray, *, has_pravega: bool = False) -> Mask:
    """Return the ledgers that no part of Pulsar made, as far as their records say.

    Args:
        custom: of CATALOG_LEDGERS.
        has_pravega: the records of Pravega's containers were listed: its ledgers are no others, either.
    """
    known = pa.array([_PULSAR, *([PRAVEGA] if has_pravega else [])], pa.string())
    return _to_mask(pc.invert(pc.is_in(_read_value(custom, _APPLICATION), value_set=known)))


def _read_value(custom: pa.ChunkedArray, name: str) -> pa.Array:
    """Return the value that each row has under a name, as text; null where it has none, or one that is not a text."""
    lists = custom.combine_chunks() if isinstance(custom, pa.ChunkedArray) else custom
    items, parents = lists.flatten(), pc.list_parent_indices(lists)
    wanted = pc.equal(pc.struct_field(items, 0), name)
    rows = parents.filter(wanted).to_numpy()
    places = np.full(len(lists), -1)
    places[rows] = np.arange(len(rows))
    values = pc.struct_field(items, 1).filter(wanted).dictionary_encode()
    # They are few: bytes that are no text are nobody's name.
    named = pa.array([_decode(raw) for raw in values.dictionary.to_pylist()], pa.string()).take(values.indices)
    return named.take(pa.array(places, mask=places < 0))


def _decode(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _to_mask(column: Any) -> Mask:  # noqa: ANN401 - an Arrow column
    return np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)
