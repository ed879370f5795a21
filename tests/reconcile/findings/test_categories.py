"""Every category of findings can be shown: how grave it is, and what to do about it."""

import pytest

from reconcile.findings.categories import SEVERITIES, SEVERITY_ORDER, SUGGESTED, Category


@pytest.mark.parametrize("category", Category)
def test_a_category_has_a_severity_and_a_remedy(category: Category) -> None:
    """A finding of a new category is written and shown, not a KeyError in the middle of a run."""
    assert SEVERITIES[category] in SEVERITY_ORDER
    assert SUGGESTED[category]
    assert category == category.name
