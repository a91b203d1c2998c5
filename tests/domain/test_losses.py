"""What is lost bit by bit, and when that is too much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.domain.manifest import DeleteGuard
from instep.domain.promotion_rules import NO_LOSS, Loss, PartLoss, lost_by

losses = st.builds(Loss, st.integers(0, 50), st.integers(0, 50))
parts = st.lists(st.builds(PartLoss, losses, st.booleans()), max_size=10)


@given(parts)
def test_losses_since_the_last_allowed_one_are_summed(found: list[PartLoss]) -> None:
    last = max((place for place, each in enumerate(found) if each.allowed), default=-1)
    since = [each.loss for each in found[last + 1 :]]
    assert lost_by(found) == Loss(sum(each.units for each in since), sum(each.rows for each in since))


def test_nothing_is_no_loss() -> None:
    assert not NO_LOSS
    assert Loss(units=1)
    assert Loss(rows=1)


@given(st.integers(101, 2_000), st.integers(1, 50), st.floats(0.01, 0.9))
def test_a_source_that_goes_bit_by_bit_is_refused_as_one_that_goes_at_once(whole: int, bit: int, share: float) -> None:
    guard, lost = DeleteGuard(share, 100), 0
    while lost < whole and not guard.refuses(min(bit, whole - lost), whole - lost, lost):
        lost += min(bit, whole - lost)
    assert lost < whole
    assert lost == 0 or not guard.refuses(lost, whole)
    assert guard.refuses(min(lost + bit, whole), whole)
