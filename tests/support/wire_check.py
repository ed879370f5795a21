"""A way to authenticate for tests, the other half of java/WireCheck.java: hello, more?, good, welcome."""

from backends.bookie.auth import Exchange


class _Rounds:
    def __init__(self, second: bytes) -> None:
        self._second = second

    def first(self) -> bytes:
        return b"hello"

    def answer(self, payload: bytes) -> bytes | None:
        return self._second if payload == b"more?" else None


class WireCheck:
    """What the bookie takes."""

    plugin = "wirecheck"
    second = b"good"

    def begin(self) -> Exchange:
        return _Rounds(self.second)


class WrongPassword(WireCheck):
    """What it refuses."""

    second = b"bad"


class OtherPlugin(WireCheck):
    """What it does not know."""

    plugin = "other"
