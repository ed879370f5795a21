"""The bookies of a cluster as its store knows them: under which names, and where each listens.

    a name in a record is                            and its bookie listens
    registered, or an alias of a registered id       where the registration says; where it says nothing, at its own id
    not registered, but has a cookie                 at its own id, if that is host:port; else nothing can tell
    named in the aliases as itself                   the same
    none of these                                    ALIAS_UNRESOLVED: it may be another bookie's old name

A name that is another bookie's address is never taken for a bookie of its own: asked under two names, one copy of an
entry would look like two.

Source: docs/formats/wire.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backends.bookie.client import Address
from backends.protocols import MetadataStore, Versioned
from recovery.codecs import store as keys
from recovery.codecs.registration import address_in, decode_registration
from recovery.errors import FormatError, InputError

ALIAS_UNRESOLVED: Final = "ALIAS_UNRESOLVED"


@dataclass(frozen=True, slots=True)
class NamedMember:
    """A bookie, or a name that is none.

    Attributes:
        bookie: its id; the name itself if it is unresolved.
        address: where it is asked; None: it cannot be.
        why: why not.
        unresolved: the name stands for no known bookie.
        cookie: that the store has of it; None: none.
        registered_txn: when it came, as the store counts; None: it is not registered.
    """

    bookie: str
    address: Address | None = None
    why: str = ""
    unresolved: bool = False
    cookie: bytes | None = None
    registered_txn: int | None = None


class BookieNames:
    """Who is who; see the module's table.

    Args:
        registrations: by id, of bookies that run, read-only ones too.
        cookies: by id.
        aliases: name → id.

    Raises:
        InputError: an alias is registered itself as another bookie.
    """

    def __init__(
        self, registrations: Mapping[str, Versioned], cookies: Mapping[str, bytes], aliases: Mapping[str, str]
    ) -> None:
        for name, bookie in aliases.items():
            if name in registrations and name != bookie:
                problem = f"is registered as a bookie of its own, and an alias of {bookie}"
                raise InputError(f"alias {name}", problem, "take it out of the aliases")
        self._registrations = registrations
        self._cookies = cookies
        self._aliases = aliases
        self._listening: dict[Address, str] = {}
        self._members: dict[str, NamedMember] = {}
        for bookie in sorted(registrations):
            member = self.find(bookie)
            if member.address is not None:
                self._listening[member.address] = bookie

    @property
    def bookies(self) -> list[str]:
        """Ids of all bookies that the store knows."""
        known = {self._aliases.get(name, name) for name in (*self._registrations, *self._cookies)}
        return sorted(known | set(self._aliases.values()))

    def find(self, name: str) -> NamedMember:
        """Return who a name is."""
        if name not in self._members:
            self._members[name] = self._look_up(name)
        return self._members[name]

    def _look_up(self, name: str) -> NamedMember:
        bookie = self._aliases.get(name, name)
        cookie = self._cookies.get(bookie)
        registration = self._registrations.get(bookie)
        txn = None if registration is None else registration.created_txn
        if registration is None and cookie is None and bookie not in self._aliases.values():
            why = f"is not registered and has no cookie; name the bookie by an alias: '{name} BOOKIE-ID'"
            return NamedMember(name, why=why, unresolved=True)
        try:
            endpoint = decode_registration(registration.value) if registration is not None else None
        except FormatError as error:
            why = f"its registration cannot be read ({error.detail or error.reason})"
            return NamedMember(bookie, why=why, cookie=cookie, registered_txn=txn)
        endpoint = endpoint or address_in(bookie)
        if endpoint is None:
            why = (
                "is not registered, and its id is not an address"
                if registration is None
                else "its registration has no address"
            )
            return NamedMember(bookie, why=why, cookie=cookie, registered_txn=txn)
        address = Address(endpoint.host, endpoint.port)
        other = self._listening.get(address, bookie)
        if other != bookie:
            why = f"is where bookie {other} listens; if it is the same, say so by an alias: '{name} {other}'"
            return NamedMember(name, why=why, unresolved=True)
        return NamedMember(bookie, address, cookie=cookie, registered_txn=txn)


def read_members(store: MetadataStore, root: str, layout: str | None, aliases: Mapping[str, str]) -> BookieNames:
    """Read who the bookies are.

    Args:
        store: only read.
        root: key of the ledgers root.
        layout: that the store's URI names, if it names one.
        aliases: name → id.

    Raises:
        InputError: an alias is registered itself.
        BackendError: the store does not answer, or refuses.
    """
    places = keys.places(layout)
    registrations: dict[str, Versioned] = {}
    for folder in reversed(places.registrations):
        registrations.update(_read_children(store, root + folder))
    for folder in places.registrations:
        registrations.pop(folder.rpartition("/")[2], None)
    cookies = {name: stored.value for name, stored in _read_children(store, root + places.cookies).items()}
    return BookieNames(registrations, cookies, aliases)


def _read_children(store: MetadataStore, folder: str) -> dict[str, Versioned]:
    names = store.children(folder) or []
    read = store.get_many(f"{folder}/{name}" for name in names)
    return {key.rpartition("/")[2]: stored for key, stored in read if stored is not None}
