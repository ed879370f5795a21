"""Do snapshots have Pulsar's topics, so that a plan can bring them back with the ledgers?"""

from collections.abc import Sequence

from reconcile.jobs.context import Context, connect
from reconcile.pulsar.topic_records import holds_topics
from reconcile.snapshots import find_snapshots
from reconcile.stores import catalog_path
from recovery.capture.subtrees import TOPICS
from recovery.codecs.store_kind import kind_of
from recovery.dataset import open_dataset


def have_topics(snapshots: Sequence[str], uri: str, context: Context) -> bool:
    """Say whether one of some snapshots has a node below Pulsar's topics.

    Args:
        snapshots: as `reconcile.snapshots` takes them.
        uri: of the store that they are of.
        context: of the job.

    Raises:
        InputError: a path leads nowhere, or to nothing of a store.
        UnavailableError: a store does not answer.
    """
    with find_snapshots(snapshots, uri) as uris:
        return any(_has_topics(given, context) for given in uris)


def _has_topics(uri: str, context: Context) -> bool:
    if (folder := catalog_path(uri)) is not None:
        return holds_topics(open_dataset(folder, "catalog"))
    with connect(uri, context) as opened:
        above = opened.root.rstrip("/").rpartition("/")[0]
        return kind_of(opened.layout_hint).has_pulsar and bool(opened.store.children(above + TOPICS))
