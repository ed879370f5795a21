"""Every category of findings can be shown: how grave it is, and what to do about it."""

import pytest

from reconcile.findings.categories import SEVERITY_ORDER, TRAITS, Category


@pytest.mark.parametrize("category", Category)
def test_a_category_has_a_severity_and_a_remedy(category: Category) -> None:
    """A finding of a new category is written and shown, not a KeyError in the middle of a run."""
    assert TRAITS[category].severity in SEVERITY_ORDER
    assert TRAITS[category].remedy
    assert category == category.name
