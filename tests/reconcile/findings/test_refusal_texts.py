"""Every reason to refuse a ledger has words."""

import pytest

from reconcile.findings.refusal_texts import REASONS
from recovery.infer.refusal import Refusal


@pytest.mark.parametrize("refusal", Refusal)
def test_a_refusal_has_a_reason_and_what_would_settle_it(refusal: Refusal) -> None:
    """A hold of a new kind is shown, not a KeyError in the middle of a run."""
    reason, settled_by = REASONS[refusal]
    assert reason
    assert settled_by
