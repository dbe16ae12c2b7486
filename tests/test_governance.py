from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.errors import ContractError, GovernanceError
from adescent.evolvable import Evolvable
from adescent.governance import (
    FAST_MAX,
    FROZEN_IDS,
    L1SerialGate,
    Level,
    audit_gain,
    classify,
    ensure_not_frozen,
    oracle_forced,
)

FAR = [Evolvable("far", blast_radius=0.9), Evolvable("further", blast_radius=1.0)]
NEAR = Evolvable("near", blast_radius=FAST_MAX)


@given(st.floats(0.0, 1.0))
def test_the_radius_decides_between_serial_and_fast(radius: float) -> None:
    expected = Level.L2 if radius <= 0.30 else Level.L1
    assert classify(Evolvable("prompt", blast_radius=radius)) is expected


@given(st.sampled_from(sorted(FROZEN_IDS)), st.floats(0.0, 1.0))
def test_what_decides_over_the_run_is_frozen_by_name(name: str, radius: float) -> None:
    assert classify(Evolvable(name, blast_radius=radius)) is Level.L0
    with pytest.raises(GovernanceError, match=name):
        ensure_not_frozen(name)


def test_the_frozen_names_are_these_four() -> None:
    assert sorted(FROZEN_IDS) == ["audit_budget", "merge_permissions", "oracle", "safety_constraints"]
    ensure_not_frozen("oracle2")
    assert issubclass(GovernanceError, ContractError)


@given(st.floats(0.0, 1.0), st.floats(0.0, 0.5), st.floats(0.25, 4.0))
def test_an_audit_is_worth_more_the_less_its_artifact_is_trusted(radius: float, sd: float, trust: float) -> None:
    assert audit_gain(radius, sd, trust) == pytest.approx(radius * sd / trust)
    assert audit_gain(radius, sd, 0.1) == audit_gain(radius, sd, 0.25) >= audit_gain(radius, sd, trust)


@pytest.mark.parametrize(
    ("radius", "trust", "forced"), [(0.30, 0.75, False), (0.31, 4.0, True), (0.0, 0.74, True), (0.2, 1.0, False)]
)
def test_the_oracle_is_forced_by_reach_or_by_mistrust(radius: float, trust: float, forced: bool) -> None:
    assert oracle_forced(radius, trust) is forced


@pytest.mark.anyio
async def test_far_reaching_artifacts_merge_one_at_a_time() -> None:
    gate = L1SerialGate()
    first_in, may_leave = anyio.Event(), anyio.Event()
    merged: list[str] = []

    async def hold() -> None:
        async with gate.merging(FAR[0]):
            first_in.set()
            await may_leave.wait()
            merged.append("far")

    async def follow() -> None:
        await first_in.wait()
        async with gate.merging(FAR[1]):
            merged.append("further")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(hold)
            group.start_soon(follow)
            await first_in.wait()
            async with gate.merging(NEAR):  # an L2 artifact passes while the gate is held
                merged.append("near")
            await anyio.wait_all_tasks_blocked()
            assert merged == ["near"]
            may_leave.set()
    assert merged == ["near", "far", "further"]


@pytest.mark.anyio
async def test_fast_artifacts_merge_side_by_side() -> None:
    gate = L1SerialGate()
    with anyio.fail_after(5):
        async with gate.merging(NEAR), gate.merging(NEAR), gate.merging(FAR[0]):
            pass


@pytest.mark.anyio
async def test_a_merge_that_fails_or_is_cancelled_leaves_the_gate_open() -> None:
    gate = L1SerialGate()
    with anyio.fail_after(5):
        with pytest.raises(ValueError, match="no"):
            async with gate.merging(FAR[0]):
                raise ValueError("no")
        with anyio.CancelScope() as scope:
            async with gate.merging(FAR[0]):
                scope.cancel()
                await anyio.sleep_forever()
        async with gate.merging(FAR[1]):
            pass


@pytest.mark.anyio
async def test_a_frozen_artifact_never_merges() -> None:
    with pytest.raises(GovernanceError):
        async with L1SerialGate().merging(Evolvable("oracle")):
            pytest.fail("it was let in")
