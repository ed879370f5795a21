"""A bookie's disks into an inventory dataset."""

from recovery.collect.bookie import CollectOptions, CollectSummary, collect
from recovery.collect.conf import BookieConf, read_conf
from recovery.collect.reading import Progress

__all__ = ["BookieConf", "CollectOptions", "CollectSummary", "Progress", "collect", "read_conf"]
