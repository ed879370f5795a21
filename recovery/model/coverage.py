"""Which bookies of a cluster were scanned, which were not, and what names its members: one account for all commands.

    a bookie                             is listed in
    scanned, completely                  scanned, complete
    scanned, with gaps                   scanned, not_complete
    named as a member, not scanned       not_scanned
    scanned, not named as a member       not_named, if a source names the members
    stated to be gone for good           lost, and in none of not_complete, not_scanned

A bookie that was not scanned may have data: what the other bookies lack is not proven to be absent.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which bookies were scanned, and which were not.

    Attributes:
        scanned: bookies with an inventory, or that answered.
        complete: the scanned bookies that were read to their end.
        not_complete: the other scanned bookies.
        members_known_from: sources that name the members of the cluster; empty: none does.
        not_scanned: members that were not scanned.
        not_named: scanned bookies that no source names as members.
        cluster_not_named: sources that do not name their cluster.
        lost: bookies that are stated to be gone: nothing more of them will be seen.
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
            scanned: each scanned bookie, and whether it was read to its end.
            members: each source that names members, and the members that it names; listed in this order.
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

    def to_json(self) -> dict[str, list[str]]:
        """Return it as manifests and ``--json`` have it."""
        return {name: list(values) for name, values in asdict(self).items()}

    def with_nameless(self, sources: Sequence[str]) -> "Coverage":
        """Return the account with the sources that do not name their cluster."""
        return replace(self, cluster_not_named=tuple(sources))

    def without_lost(self, lost: Sequence[str]) -> "Coverage":
        """Return the account with bookies that are gone: nothing more of them is expected."""
        gone = set(lost)
        return replace(
            self,
            not_complete=tuple(name for name in self.not_complete if name not in gone),
            not_scanned=tuple(name for name in self.not_scanned if name not in gone),
            lost=tuple(lost),
        )

    @property
    def is_whole(self) -> bool:
        """Whether the members are known, and each of them was scanned completely or is lost."""
        return bool(self.members_known_from) and not self.not_scanned and not self.not_complete
