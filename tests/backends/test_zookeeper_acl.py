"""Rights as text, as `Versioned` and `Write` carry them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.zookeeper.acl import format_acl, make_acl


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True),
            st.from_regex(r"[A-Za-z0-9=/+ .,@-]{0,12}", fullmatch=True),
            st.sets(st.sampled_from("cdrwa")),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_rights_survive_their_text_form(entries: list[tuple[str, str, set[str]]]) -> None:
    """Any rights, with commas in ids too, come back from their text as they were."""
    text = ",".join(f"{scheme}:{name}:{''.join(p for p in 'cdrwa' if p in perms)}" for scheme, name, perms in entries)
    assert format_acl(make_acl(text)) == text


@pytest.mark.parametrize("text", ["", "world", "world:anyone", "world:anyone:x", "world:anyone:r,", ",world:anyone:r"])
def test_what_is_no_right_is_a_mistake(text: str) -> None:
    """Rights that cannot be read are never taken for none."""
    with pytest.raises(ValueError, match="scheme:id:perms"):
        make_acl(text)
