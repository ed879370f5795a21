"""Which bookies of a cluster were looked at, which were not, and what names its members: one account for all commands.

    a bookie                             is listed in
    looked at, completely                scanned, complete
    looked at, with gaps                 scanned, not_complete
    named as a member, not looked at     not_scanned
    looked at, named by nobody           not_named, where something names the members
    stated to be gone for good           lost, and in none of not_complete, not_scanned

What was not looked at may have data: nothing that is absent from the other bookies is proven to be absent.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was looked at, and what was not.

    Attributes:
        scanned: bookies that were looked at.
        complete: those of them of which everything was read.
        not_complete: the others of them.
        members_known_from: what names the members of the cluster; empty: nothing does.
        not_scanned: members that were not looked at.
        not_named: bookies that were looked at and that nothing names as members.
        cluster_not_named: sources that do not say about which cluster they are.
        lost: bookies of which nothing will come back that was not seen, as somebody states.
    """

    scanned: tuple[str, ...] = ()
    complete: tuple[str, ...] = ()
    not_complete: tuple[str, ...] = ()
    members_known_from: tuple[str, ...] = ()
    not_scanned: tuple[str, ...] = ()
    not_named: tuple[str, ...] = ()
    cluster_not_named: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    @classmethod
    def count(cls, scanned: Mapping[str, bool], members: Mapping[str, Collection[str]]) -> "Coverage":
        """Account for the bookies of a cluster.

        Args:
            scanned: each bookie that was looked at, and whether everything of it was read.
            members: what names members, and the members that it names; they are listed in this order.
        """
        named = {name for names in members.values() for name in names}
        return cls(
            scanned=tuple(sorted(scanned)),
            complete=tuple(sorted(name for name, complete in scanned.items() if complete)),
            not_complete=tuple(sorted(name for name, complete in scanned.items() if not complete)),
            members_known_from=tuple(members),
            not_scanned=tuple(sorted(named - scanned.keys())),
            not_named=tuple(sorted(scanned.keys() - named)) if members else (),
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Coverage":
        """Read it as manifests have it; what an older version did not write is empty."""
        return cls(**{name: tuple(values.get(name) or ()) for name in cls.__slots__})

    def to_json(self) -> dict[str, list[str]]:
        """Return it as manifests and ``--json`` have it."""
        return {name: list(values) for name, values in asdict(self).items()}

    def with_nameless(self, sources: Sequence[str]) -> "Coverage":
        """Return it with the sources that do not say about which cluster they are."""
        return replace(self, cluster_not_named=tuple(sources))

    def without_lost(self, lost: Sequence[str]) -> "Coverage":
        """Return it with bookies of which nothing is expected any more that was not seen."""
        gone = set(lost)
        return replace(
            self,
            not_complete=tuple(name for name in self.not_complete if name not in gone),
            not_scanned=tuple(name for name in self.not_scanned if name not in gone),
            lost=tuple(lost),
        )

    @property
    def is_whole(self) -> bool:
        """Whether the members are known, and every one of them was looked at completely, or is lost."""
        return bool(self.members_known_from) and not self.not_scanned and not self.not_complete
