"""Ed25519 keys of people who sign, as PEM files."""

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class Person:
    """A person with a key pair.

    Attributes:
        name: as a policy has it.
        private: PEM file.
        public: PEM file.
    """

    name: str
    private: Path
    public: Path


def make_person(folder: Path, name: str) -> Person:
    """Make a person's key pair."""
    key = Ed25519PrivateKey.generate()
    person = Person(name, folder / f"{name}.pem", folder / f"{name}.pub.pem")
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    person.private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    person.public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return person
