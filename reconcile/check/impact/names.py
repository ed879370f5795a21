"""The values of an impact check: states of bookies, actions on them, impacts on segments, verdicts.

state of a bookie   readable   writable   source of copies   destination
read-write          yes        yes        yes                yes
read-only           yes        no         yes                no
down                no         no         not now            no
gone                no         no         never              no
unrecoverable       no         no         never, and no client waits for it
"""

from enum import IntEnum, StrEnum
from typing import Final


class CopyHealth(IntEnum):
    """The state of a bookie, or of one copy; a greater value is worse."""

    READ_WRITE = 0
    READ_ONLY = 1
    DOWN = 2
    GONE = 3
    UNRECOVERABLE = 4

    @property
    def label(self) -> str:
        """For people and programs."""
        return self.name.lower().replace("_", "-")


class ImpactTarget(StrEnum):
    """The action on the named bookies."""

    READ_ONLY = "read-only"
    DOWN = "down"
    GONE = "gone"

    @property
    def state(self) -> CopyHealth:
        """The state that a bookie then has at least."""
        return CopyHealth[self.name]


class Impact(StrEnum):
    """An impact on a segment, or on the cluster; values are stored, so never renamed."""

    DATA_LOSS = "DATA_LOSS"
    """An entry has no copy that could ever come back."""
    READ_AVAILABILITY_LOSS = "READ_AVAILABILITY_LOSS"
    """An entry cannot be read until a bookie returns."""
    RECOVERY_LOSS = "RECOVERY_LOSS"
    """A ledger that is not closed can be neither fenced nor closed."""
    WRITE_AVAILABILITY_LOSS = "WRITE_AVAILABILITY_LOSS"
    """A writer finds no bookie to replace a lost one, or a new ledger finds no ensemble."""
    REBUILDING_STALL = "REBUILDING_STALL"
    """A lost copy has no source, or no bookie to hold it again."""
    READ_MARGIN_LOSS = "READ_MARGIN_LOSS"
    """An entry would be unreadable without one more bookie, or rack."""
    STORAGE_CAPACITY_LOSS = "STORAGE_CAPACITY_LOSS"
    """Too many of the writable bookies are lost."""
    METADATA_QUORUM = "METADATA_QUORUM"
    """ZooKeeper's own servers on the same hosts lose their majority."""


OF_SEGMENTS: Final = tuple(Impact)[:6]
"""Impacts on single segments; the others are of the whole cluster."""


class ImpactVerdict(StrEnum):
    """The answer."""

    SAFE = "SAFE"
    UNSAFE = "UNSAFE"
    UNDECIDED = "UNDECIDED"


class DomainLevel(StrEnum):
    """Failure domains."""

    BOOKIE = "bookie"
    RACK = "rack"
    ZONE = "zone"
    REGION = "region"


UNKNOWN: Final = "UNKNOWN"
"""Domain of bookies without a location."""
