"""Files encrypted for a recipient, by the system's own tools.

age1…        age -r RECIPIENT; read again with age -d -i FILE, where BKMETA_AGE_IDENTITY names the file
gpg:KEY      gpg --encrypt --recipient KEY; read again with gpg --decrypt, by the keys of this user
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recovery.errors import InputError

_AGE: Final = "age"
_GPG: Final = "gpg"
IDENTITY: Final = "BKMETA_AGE_IDENTITY"
"""Variable that names the file with the identity by which age decrypts."""


@dataclass(frozen=True, slots=True)
class Recipient:
    """Who can read what is encrypted.

    Attributes:
        tool: age or gpg.
        name: as the tool takes it.
    """

    tool: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "Recipient":
        """Return what a person wrote.

        Raises:
            InputError: it is neither form, or the tool is not on this machine.
        """
        tool, name = (_AGE, text) if text.startswith("age1") else (_GPG, text.removeprefix("gpg:"))
        if tool == _GPG and (not text.startswith("gpg:") or not name):
            raise InputError(text, "names no recipient", "write age1… or gpg:KEY")
        require_tool(tool)
        return cls(tool, name)

    def encrypt(self, source: Path, target: Path) -> None:
        """Encrypt a file into another one.

        Raises:
            InputError: the tool refuses.
        """
        if self.tool == _AGE:
            _run(["age", "-r", self.name, "-o", str(target), str(source)], self.name)
            return
        words = ["gpg", "--batch", "--yes", "--quiet", "--trust-model", "always", "--recipient", self.name]
        _run([*words, "--output", str(target), "--encrypt", str(source)], self.name)


def decrypt(tool: str, source: Path, target: Path) -> None:
    """Decrypt a file into another one.

    Raises:
        InputError: the tool is not there, has no key, or refuses.
    """
    require_tool(tool)
    if tool == _AGE:
        identity = os.environ.get(IDENTITY)
        if not identity:
            raise InputError("the backup", "is encrypted with age", f"name the identity's file in {IDENTITY}")
        _run(["age", "-d", "-i", identity, "-o", str(target), str(source)], source.name)
        return
    _run(["gpg", "--batch", "--yes", "--quiet", "--output", str(target), "--decrypt", str(source)], source.name)


def can_decrypt(tool: str) -> bool:
    """Say whether this process may be able to read again what the tool encrypts: a follower needs not."""
    return tool == _AGE and bool(os.environ.get(IDENTITY))


def require_tool(tool: str) -> None:
    """Refuse where a tool is not on this machine.

    Raises:
        InputError: it is not.
    """
    if shutil.which(tool) is None:
        raise InputError(tool, "is not on this machine, and encrypts or decrypts the backup", f"install {tool}")


def _run(words: Sequence[str], subject: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        message = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise InputError(subject, f"{words[0]} refuses: {message}", f"see that {words[0]} has the key")
