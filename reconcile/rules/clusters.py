"""Which cluster a source is of: two sources of two clusters are never put together.

Clusters may have bookies of the same names and ledgers of the same ids, so a foreign snapshot looks like one of ours.
Only the instance id tells them apart: a store has it in INSTANCEID, a bookie in its cookie. Old clusters have none:
where a source names none, nothing is refused, and it is said.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recovery.codecs import cookie
from recovery.errors import FormatError, InputError


@dataclass(frozen=True, slots=True)
class Source:
    """One source, and the instance id that it names.

    Attributes:
        name: for people: what it is, and where.
        instance_id: None: it names none.
    """

    name: str
    instance_id: str | None


def named_by_cookies(cookies: Mapping[str, bytes]) -> dict[str, list[str]]:
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


def demand_one(sources: Iterable[Source], remedy: str) -> None:
    """Refuse sources of two clusters; the first that names an instance id is whose cluster the others must be of.

    Raises:
        InputError: two name different ones; both are named, and where they stand.
    """
    known = [source for source in sources if source.instance_id is not None]
    for source in known[1:]:
        if source.instance_id != known[0].instance_id:
            problem = f"is of cluster instance {source.instance_id}, {known[0].name} is of {known[0].instance_id}"
            raise InputError(source.name, problem, remedy)


def nameless(sources: Iterable[Source]) -> list[str]:
    """Return the sources that name no instance id: nothing shows of which cluster they are."""
    return [source.name for source in sources if source.instance_id is None]
