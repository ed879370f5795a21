"""Kerberos and SASL where they are really asked for: a KDC, ZooKeeper and bookies of one realm, and who is refused."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from backends.bookie import frames
from backends.bookie.auth import USER_VARIABLE
from backends.bookie.client import Address, BookieOptions, BookieWire
from backends.bookie.frames import BookieAnswer, RequestOutcome
from backends.errors import AccessDeniedError
from backends.protocols import Kerberos, Write
from backends.registry import open_election
from backends.sasl.gssapi import KerberosError, name_principal
from backends.zookeeper.acl import digest_principal
from backends.zookeeper.identity import ask_names
from backends.zookeeper.reader import ZooKeeperReader
from backends.zookeeper.store import ZooKeeperStore
from reconcile.cli.access import EnvironmentAccess
from reconcile.stores import KnownAccess, list_principals, open_store
from recovery.bookies.addresses import read_members
from recovery.codecs.store import Layout, layout_bytes
from recovery.errors import InputError
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.command import run
from tests.support.kerberos import REALM, Realm

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

JAAS: Final = """
Server {{ {module} keyTab="{zookeeper}" principal="zookeeper/localhost@{realm}"; }};
Tickets {{ {module} keyTab="{bookkeeper}" principal="bookkeeper/127.0.0.1@{realm}"; }};
Passwords {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_bob="hunter2"; }};
"""
MODULE: Final = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true useTicketCache=false"
)
FACTORY: Final = "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"
WAYS: Final = ("Tickets", "Passwords")
ASKING: Final = BookieOptions(deadline_s=60, patience_s=120)
HASTY: Final = BookieOptions(deadline_s=0.5, patience_s=0.5)
"""For what a bookie of SASL refuses by saying nothing."""


@dataclass(frozen=True)
class Secured:
    """A cluster of the realm: its ZooKeeper takes tickets, one bookie tickets, the other one passwords."""

    realm: Realm
    hosts: str
    addresses: dict[str, Address]
    keytab: Path
    ledger: int

    def be(self, monkeypatch: pytest.MonkeyPatch, *, keytab: Path | None = None, cache: Path | None = None) -> None:
        """Have this process be of the realm."""
        for name, value in self.realm.environment(keytab=keytab, cache=cache).items():
            monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One realm, and one cluster in it, for all tests."""
    folder = tmp_path_factory.mktemp("realm")
    realm = Realm(folder)
    keytabs = {
        name: realm.make(f"{name}/{host}") for name, host in (("zookeeper", "localhost"), ("bookkeeper", "127.0.0.1"))
    }
    jaas = folder / "jaas"
    jaas.write_text(JAAS.format(module=MODULE, realm=REALM, **keytabs))
    options = (
        f"-Djava.security.auth.login.config={jaas}",
        f"-Djava.security.krb5.conf={realm.conf}",
        "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    )
    with realm.running(), Cluster(folder / "cluster", options=options) as cluster:
        cluster.start_zookeeper("zookeeper", "/ledgers")
        cluster("format", layout="hierarchical")
        bookies = {
            way: Bookie(n, f"sasl-{way}", "sorted", [f"b{n}/journal"], [f"b{n}/ledgers"]) for n, way in enumerate(WAYS)
        }
        for bookie in bookies.values():
            cluster.start(bookie)
        ledger = cluster("create", E=2, W=2, A=2, digest="CRC32C", password=encoded(b"pw"), custom={})
        cluster("add", ledger=ledger, sizes=[40] * 3, ids=None)
        cluster("close", ledger=ledger)
        for way, bookie in bookies.items():
            cluster("bookie_stop", n=bookie.n)
            props = {
                "bookieAuthProviderFactoryClass": FACTORY,
                "saslJaasBookieSectionName": way,
                "saslJaasClientAllowedIds": ".*",
            }
            cluster.start(replace(bookie, props=props))
        with open_store(f"zk+hierarchical://{cluster.zookeeper}/ledgers") as opened:
            members = read_members(opened.store, opened.root, None, {})
        addresses = {way: members.find(bookie.id).address for way, bookie in bookies.items()}
        hosts = cluster.zookeeper.replace("127.0.0.1", "localhost")
        known = {way: address for way, address in addresses.items() if address is not None}
        yield Secured(realm, hosts, known, realm.make("operator"), ledger)


def asked(secured: Secured, way: str, auth: str | None, options: BookieOptions = ASKING) -> list[BookieAnswer]:
    """What a bookie answers to one who proves himself in this way: an entry, and a ledger that it does not know."""

    async def ask() -> list[BookieAnswer]:
        with BookieWire({"bookie": secured.addresses[way]}, replace(options, auth=auth)) as wire:
            requests = frames.read_entry(secured.ledger, 0), frames.list_entries(4711)
            return [await wire["bookie"].one(request) for request in requests]

    return asyncio.run(ask())


def test_a_keytab_and_a_ticket_are_a_session_of_zookeeper(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """By either, what the principal alone may read is read, values and rights; the server says whom it takes us for."""
    secured.be(monkeypatch, keytab=secured.keytab)
    us = Kerberos("zookeeper")
    principal = f"sasl:operator@{REALM}"
    assert principal in ask_names(secured.hosts, sasl=us)
    assert list_principals(KnownAccess(sasl=us)) == [principal]
    store = ZooKeeperStore(secured.hosts, chroot="/kerberos", sasl=us)
    store.write([Write(f"/k/{n}", b"v", acl=f"{principal}:cdrwa") for n in range(5)])
    keys = [f"/k/{n}" for n in range(5)]
    store.close()
    cache = secured.realm.take_ticket("operator", secured.keytab)
    secured.be(monkeypatch, cache=cache)
    monkeypatch.delenv("KRB5_CLIENT_KTNAME")
    monkeypatch.setenv("BKMETA_ZK_KERBEROS", "zookeeper")
    with open_store(f"zk+hierarchical://{secured.hosts}/kerberos", EnvironmentAccess()) as opened:
        assert [held and held.value for _, held in opened.store.get_many([f"/kerberos{key}" for key in keys])] == [
            b"v"
        ] * 5
        assert list_principals(EnvironmentAccess(), opened) == [principal]
    nobody = ZooKeeperReader(secured.hosts, chroot="/kerberos")
    with pytest.raises(AccessDeniedError):
        nobody.get("/k/0")
    nobody.close()


def test_an_election_by_a_ticket(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """What elections make belongs to the principal, and it leads."""
    secured.be(monkeypatch, keytab=secured.keytab)
    us = Kerberos("zookeeper")
    rights = f"sasl:operator@{REALM}:cdrwa"
    election = open_election(f"zk+hierarchical://{secured.hosts}/ledgers", "/kerberos-lead", "a", acl=rights, sasl=us)
    try:
        assert election.campaign(lambda: None)
    finally:
        election.close()


def test_who_has_no_ticket_is_told_so_at_once(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """No ticket, a service that the realm does not know: Kerberos' own words, long before patience is over."""
    secured.be(monkeypatch)
    with pytest.raises(KerberosError, match=r"[Nn]o .*credentials|keytab"):
        name_principal()
    with pytest.raises(AccessDeniedError, match=r"Kerberos, zookeeper/localhost: .*(credentials|keytab)"):
        ZooKeeperReader(secured.hosts, sasl=Kerberos("zookeeper"), patience_s=120)
    with pytest.raises(AccessDeniedError, match=r"credentials|keytab"):
        list_principals(KnownAccess(sasl=Kerberos("zookeeper")))
    secured.be(monkeypatch, keytab=secured.keytab)
    with pytest.raises(AccessDeniedError, match=r"nothing/localhost@\S+ not found in Kerberos database"):
        ZooKeeperReader(secured.hosts, sasl=Kerberos("nothing"), patience_s=120)


def test_bookies_take_tickets_and_passwords(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answers who proves himself in its way, and refuses all others: never a negative, never an endless wait."""
    secured.be(monkeypatch, keytab=secured.keytab)
    monkeypatch.setenv(USER_VARIABLE, "bob:hunter2")
    assert [a.outcome for a in asked(secured, "Tickets", "sasl-gssapi")] == [
        RequestOutcome.ANSWER,
        RequestOutcome.NEGATIVE,
    ]
    assert [a.outcome for a in asked(secured, "Passwords", "sasl-digest-md5")] == [
        RequestOutcome.ANSWER,
        RequestOutcome.NEGATIVE,
    ]
    for way in WAYS:
        assert {a.outcome for a in asked(secured, way, None)} == {RequestOutcome.REFUSED}
    monkeypatch.setenv(USER_VARIABLE, "bob:wrong")
    wrong = asked(secured, "Passwords", "sasl-digest-md5", HASTY)
    assert {a.outcome for a in wrong} == {RequestOutcome.REFUSED}
    assert "wrong" not in repr(wrong)
    for auth, what in (("sasl-gssapi:nothing", "not found in Kerberos database"), ("sasl-gssapi", "")):
        if not what:
            secured.be(monkeypatch)
        refused = asked(secured, "Tickets", auth, HASTY)
        assert {a.outcome for a in refused} == {RequestOutcome.REFUSED}
        assert what in refused[0].detail


def enter_by_ticket(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have commands enter the store by a keytab's ticket, with no password; return its URI."""
    secured.be(monkeypatch, keytab=secured.keytab)
    monkeypatch.setenv("BKMETA_ZK_KERBEROS", "zookeeper")
    monkeypatch.delenv(USER_VARIABLE, raising=False)
    return f"zk+hierarchical://{secured.hosts}/ledgers"


def test_a_scrutiny_of_secured_bookies(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wire by a ticket, or by a password: one bookie lets each in, so half of the copies are seen."""
    uri = enter_by_ticket(secured, monkeypatch)
    healthy = run(capsys, "doctor", "--no-spark", "--metadata", uri)
    assert (healthy.code, "Kerberos (keytab, ticket cache)" in healthy.out) == (0, True), healthy
    look = ("scrutinize", "--metadata", uri, "--wire", "--recheck-after", "0s", "--deadline", "2", "--patience", "1")
    unset = run(capsys, *look, "--bookie-auth", "sasl-digest-md5", "--out", tmp_path / "unset")
    assert (unset.code, USER_VARIABLE in unset.err) == (2, True)
    monkeypatch.setenv(USER_VARIABLE, "bob:hunter2")
    for way in ("sasl-gssapi", "sasl-digest-md5"):
        done = run(capsys, *look, "--bookie-auth", way, "--out", tmp_path / way, "--json")
        seen = done.result["coverage"]
        assert (done.code, seen["answered"], seen["judged"], seen["positions"]) == (4, 1, 3, 6), done
        assert done.result["undecided"] == {"not seen": 1}


@pytest.mark.spark
@pytest.mark.skipif(
    "BKMETA_SOAK_SECURED" not in os.environ, reason="a Spark session for it alone: scripts/soak secured"
)
def test_inventories_of_secured_bookies(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`collect --wire`, its store by a ticket too: the bookie of tickets answers, the other one is named as refused."""
    uri = enter_by_ticket(secured, monkeypatch)
    wire = ("collect", "--wire", "--metadata", uri, "--out", tmp_path / "out", "--bookie-auth")
    made = run(capsys, *wire, "sasl-gssapi", "--json")
    bookies = made.result["coverage"]["bookies"]
    assert (made.code, bookies["sasl-Tickets"]["kind"], bookies["sasl-Tickets"]["entries"]) == (4, "collected", 3)
    assert (bookies["sasl-Passwords"]["kind"], "Kerberos" in bookies["sasl-Passwords"]["why"]) == ("refused", True)


def test_a_freeze_is_proved_as_the_bookies_principal(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the bookies' keytab exit 0, tried as their principal; with another one 4, and theirs is named."""
    root, uri = "/kerberos-frozen", f"zk+hierarchical://{secured.hosts}/kerberos-frozen"
    theirs = f"sasl:bookkeeper/127.0.0.1@{REALM}"
    tool = f"{digest_principal(('tool', 'secret'))}:cdrwa"
    store = ZooKeeperStore(secured.hosts, auth=("tool", "secret"))
    store.write([Write(root, b"", acl=f"{theirs}:cdrwa,world:anyone:r,{tool}")])
    for key in ("/00", "/idgen", "/LAYOUT"):
        value = layout_bytes(Layout.HIERARCHICAL) if key == "/LAYOUT" else b""
        store.write([Write(root + key, value, acl=f"{theirs}:cdrwa,world:anyone:r,{tool}")])
    store.write([Write(f"{root}/available", b"", acl=f"{theirs}:cdrwa,world:anyone:r")])
    store.close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BKMETA_ZK_AUTH", "tool:secret")
    monkeypatch.setenv("BKMETA_ZK_KERBEROS", "zookeeper")
    secured.be(monkeypatch, keytab=secured.keytab)
    offered = run(capsys, "freeze", "--metadata", uri, "--json").result
    done = run(capsys, "freeze", "--metadata", uri, "--confirm", offered["hash"], "--json")
    assert (done.code, done.result["coverage"]["not_tried_as"]) == (4, [theirs])
    assert done.result["coverage"]["tried_as"] == [f"sasl:operator@{REALM}"]
    secured.be(monkeypatch, keytab=secured.realm.folder / "bookkeeper-127.0.0.1.keytab")
    done = run(capsys, "freeze", "--metadata", uri, "--json")
    assert (done.code, done.result["coverage"]["not_tried_as"]) == (0, []), done.result
    assert done.result["coverage"]["tried_as"] == [theirs]


def test_two_ways_at_once_and_names_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both variables, or a principal where a service is asked for, are errors of usage."""
    monkeypatch.setenv("BKMETA_ZK_KERBEROS", "zookeeper/host@REALM")
    with pytest.raises(InputError, match="not the name of a service"):
        _ = EnvironmentAccess().sasl
    monkeypatch.setenv("BKMETA_ZK_KERBEROS", "zookeeper")
    assert EnvironmentAccess().sasl == Kerberos("zookeeper")
    monkeypatch.setenv("BKMETA_ZK_SASL", "a:b")
    with pytest.raises(InputError, match="two ways"):
        _ = EnvironmentAccess().sasl
