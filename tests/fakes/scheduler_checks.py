"""The scheduler's invariants, read off its states the slow and obvious way."""

from tests.fakes.pool_checks import check_pool

from octavo.scheduler.request_state import Status


def check_plan(scheduler, limits, plan):
    """Assert what holds of a plan just made."""
    assert plan.num_tokens <= limits.max_num_batched_tokens
    assert plan.num_logits <= limits.max_num_seqs
    assert len(plan.rows) <= limits.max_num_seqs
    assert len(plan.rows) == len({row.request_id for row in plan.rows})
    assert all(row.num_tokens > 0 for row in plan.rows)
    planned = {row.request_id for row in plan.rows}
    assert {row.request_id for row in plan.new_rows} <= planned
    for state in scheduler._roster.running:
        ending = state.num_planned_tokens == state.last_position  # its last token is being sampled
        assert state.request_id in planned or ending, "a running request got no token"
    threshold = limits.long_prefill_token_threshold
    if threshold and len(scheduler._roster.states) > 1 and not limits.adaptive_threshold and limits.chunked_prefill:
        assert all(row.num_tokens <= threshold for row in plan.rows)
    for row in plan.rows:
        state = scheduler._roster.states[row.request_id]
        assert state.status is Status.RUNNING
        assert row.start + row.num_tokens == state.num_planned_tokens <= state.table.capacity
        assert row.wants_sample == (state.num_planned_tokens >= state.num_tokens)


def check_states(scheduler, limits, num_in_flight):
    """Assert that each request is in one state and holds what belongs to it."""
    running = scheduler._roster.running
    waiting = [state for state in scheduler._roster.states.values() if state.status in (Status.WAITING, Status.PREEMPTED)]
    assert len(running) <= limits.max_num_seqs
    assert running == sorted(running, key=lambda state: state.rank)
    assert all(state.status is Status.RUNNING for state in running)
    assert len(waiting) == scheduler.num_waiting
    assert set(scheduler._roster.states) == {state.request_id for state in [*running, *waiting]}
    if limits.policy == "fcfs":
        for tenant in {state.request.tenant for state in waiting}:
            first = min(state.rank for state in waiting if state.request.tenant == tenant)
            assert all(state.rank < first for state in running if state.request.tenant == tenant), "first come, first served"
    for state in running:
        assert 0 < state.num_planned_tokens <= min(state.num_tokens + num_in_flight, state.last_position)
        assert state.plain_until <= state.table.capacity
    for state in waiting:
        assert state.num_planned_tokens == state.plain_until == state.quiet_until == 0
        assert state.table.block_ids == []
    check_pool(scheduler.kv.pool, [state.table for state in running])
