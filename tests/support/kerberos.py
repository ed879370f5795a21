"""A realm of its own: MIT's KDC from Debian's packages, installed, or unpacked in a cache of the user, without root.

krb5kdc, kadmin.local, kdb5_util and kinit      on the PATH or in /usr/sbin
${XDG_CACHE_HOME:-~/.cache}/bkmeta/krb5/        where they are not: the same, and the libraries that they need
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support import jars
from tests.support.cases import cache_home
from tests.support.waiting import free_port, until

REALM: Final = "BKMETA.TEST"
_PROGRAMS: Final = ("kdb5_util", "kadmin.local", "krb5kdc", "kinit")
_PACKAGES: Final = (
    "krb5-kdc", "krb5-admin-server", "krb5-user", "libkadm5srv-mit12", "libkadm5clnt-mit12", "libkdb5-10", "libgssrpc4",
    "libverto1", "libverto-libev1", "libev4",
)  # fmt: skip
_CONF: Final = """[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
qualify_shortname = ""
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""
_KDC: Final = """[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
}}
[dbmodules]
{plugins}
"""


class Realm:
    """A running KDC, and what was made in its realm."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "krb5.conf"
        self.port = free_port()
        self._programs, unpacked = _find_programs()
        plugins = sorted(unpacked.glob("usr/lib/*/krb5/plugins/kdb")) if unpacked else []
        libraries = sorted(unpacked.glob("usr/lib/*-linux-gnu")) if unpacked else []
        texts = {
            self.conf: _CONF,
            folder / "kdc.conf": _KDC,
        }
        for path, text in texts.items():
            where = f"db_module_dir = {plugins[0]}" if plugins else ""
            path.write_text(text.format(realm=REALM, port=self.port, folder=folder, plugins=where))
        self._environment = {
            **os.environ,
            "KRB5_CONFIG": str(self.conf),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        }
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def _run(self, program: str, *arguments: str, stdin: str = "") -> None:
        command = [self._programs[program], *arguments]
        subprocess.run(command, input=stdin, env=self._environment, check=True, capture_output=True, text=True)

    def make(self, principal: str) -> Path:
        """Make a principal; return the keytab with its key."""
        keytab = self.folder / f"{principal.replace('/', '-')}.keytab"
        lines = f"addprinc -randkey {principal}\nktadd -norandkey -k {keytab} {principal}\n"
        self._run("kadmin.local", "-r", REALM, stdin=lines)
        return keytab

    def take_ticket(self, principal: str, keytab: Path) -> Path:
        """Return a cache with a ticket, as kinit makes it."""
        cache = self.folder / f"{principal.replace('/', '-')}.cache"
        self._run("kinit", "-k", "-t", str(keytab), "-c", str(cache), principal)
        return cache

    def environment(self, *, keytab: Path | None = None, cache: Path | None = None) -> dict[str, str]:
        """Return the variables that a program of the realm goes by; a cache that is not there where none is named."""
        absent = self.folder / f"none-{keytab.name if keytab else 'at-all'}"
        found = {"KRB5_CONFIG": str(self.conf), "KRB5CCNAME": f"FILE:{cache or absent}"}
        return {**found, "KRB5_CLIENT_KTNAME": str(keytab or self.folder / "no-keytab")}

    @contextmanager
    def running(self) -> Iterator["Realm"]:
        """Give the realm with its KDC answering."""
        with (self.folder / "kdc.log").open("wb") as log:
            command = [self._programs["krb5kdc"], "-n", "-r", REALM]
            kdc = subprocess.Popen(command, env=self._environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            until(lambda: b"starting..." in (self.folder / "kdc.log").read_bytes(), "the KDC listens")
            yield self
        finally:
            kdc.kill()
            kdc.wait()


def _find_programs() -> tuple[Mapping[str, str], Path | None]:
    """Return the programs by name, and the folder that they were unpacked in, if they were."""
    installed = _look_for(os.pathsep.join((os.environ["PATH"], "/usr/sbin")))
    if len(installed) == len(_PROGRAMS):
        return installed, None
    try:
        folder = jars._made_once(cache_home() / "krb5", _unpack)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no KDC: {error}; on Debian: apt-get install krb5-kdc krb5-admin-server krb5-user")
    return _look_for(f"{folder}/usr/sbin{os.pathsep}{folder}/usr/bin"), folder


def _look_for(path: str) -> dict[str, str]:
    found = {name: shutil.which(name, path=path) for name in _PROGRAMS}
    return {name: place for name, place in found.items() if place is not None}


def _unpack(folder: Path) -> None:
    download = ["apt-get", "download", "-qq", *_PACKAGES]
    if subprocess.run(download, cwd=folder, check=False, capture_output=True).returncode and os.geteuid() == 0:
        # A fresh machine has no lists of packages, and old lists name packages that are gone.
        subprocess.run(["apt-get", "update", "-qq"], check=True, capture_output=True)
    subprocess.run(download, cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True, capture_output=True)
        package.unlink()
