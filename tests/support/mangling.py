"""What disks and crashes do to bytes, for properties of parsers."""

from hypothesis import strategies as st


def mangled(raw: bytes, changes: int = 3) -> st.SearchStrategy[bytes]:
    """Return real bytes with some overwritten, zeroed, cut out or doubled, or with their end cut off."""
    places = st.integers(0, max(len(raw) - 1, 0))

    @st.composite
    def mangle(draw: st.DrawFn) -> bytes:
        data = bytearray(raw)
        for _ in range(draw(st.integers(1, changes))):
            at = draw(places)
            size = draw(st.integers(1, 64))
            match draw(st.sampled_from(["overwrite", "zero", "remove", "repeat", "cut"])):
                case "overwrite":
                    new = draw(st.binary(min_size=1, max_size=8))
                    data[at : at + len(new)] = new
                case "zero":
                    data[at : at + size] = bytes(len(data[at : at + size]))
                case "remove":
                    del data[at : at + size]
                case "repeat":
                    data[at:at] = data[at : at + size]
                case _:
                    del data[at:]
        return bytes(data)

    return mangle()
