"""What a step costs before and after the model: plan + apply, in microseconds of CPU time, with no model at all (the least of many steps).

    python benchmarks/scheduler_cost.py

All requests decode (one token a step each); block boundaries are crossed as they come, so hashing and allocation are in it.
Then with a long queue behind them: the same step, and what an abort costs, of waiting and of running requests.
"""

import gc
import time

from octavo.kv.manager import KVManager
from octavo.messages.step import SampledRow, StepPlan, StepResult
from octavo.messages.wire import GenerateRequest
from octavo.params import SamplingParams
from octavo.scheduler.admission import Limits
from octavo.scheduler.scheduler import Scheduler

STEPS = 200
PROMPT = 100


def running_scheduler(num_requests: int, num_blocks: int) -> Scheduler:
    limits = Limits(max_model_len=4096, max_num_seqs=num_requests, max_num_batched_tokens=num_requests * PROMPT, vocab_size=50_000)
    scheduler = Scheduler(limits, KVManager(num_blocks, 16))
    for number in range(num_requests):
        prompt = [(number * 31 + position) % 50_000 for position in range(PROMPT + number % 16)]
        params = SamplingParams(max_tokens=3000, seed=0)
        scheduler.add(GenerateRequest(request_id=f"request-{number}", prompt_token_ids=prompt, params=params, arrival_s=0.0))
    while scheduler.num_running < num_requests or scheduler.num_waiting:
        step(scheduler)
    return scheduler


def waiting_requests(num_requests: int) -> list[GenerateRequest]:
    params = SamplingParams(max_tokens=3000, seed=0)
    prompt = list(range(PROMPT))
    return [
        GenerateRequest(request_id=f"waiting-{number}", prompt_token_ids=prompt, params=params, arrival_s=0.0, tenant=f"{number % 10}")
        for number in range(num_requests)
    ]


def fake_result(plan: StepPlan) -> StepResult:
    sampled = [SampledRow(request_id=row.request_id, token_ids=[plan.step_id % 50_000]) for row in plan.rows if row.wants_sample]
    return StepResult(step_id=plan.step_id, sampled=sampled, device_s=0.0)


def step(scheduler: Scheduler) -> tuple[float, float]:
    """Return the microseconds of one plan and one apply."""
    began = time.process_time_ns()
    plan = scheduler.plan()
    planned = time.process_time_ns()
    if plan is None:
        raise SystemExit("nothing to plan")
    result = fake_result(plan)
    ran = time.process_time_ns()
    scheduler.apply(plan, result)
    return (planned - began) / 1000, (time.process_time_ns() - ran) / 1000


def least_step(scheduler: Scheduler) -> tuple[float, float]:
    """Return the microseconds of plan and of apply in the cheapest of many steps."""
    gc.collect()
    gc.freeze()  # as the engine does when it is ready
    plans, applies = zip(*[step(scheduler) for _ in range(STEPS)], strict=True)
    return min(plans), min(applies)


def main() -> None:
    print(f"{'running':>8} {'blocks':>10} {'plan us':>9} {'apply us':>9} {'us a request':>13}")
    for num_requests, num_blocks in ((1, 100_000), (128, 100_000), (1024, 400_000), (1024, 1_000_000)):
        scheduler = running_scheduler(num_requests, num_blocks)
        plan_us, apply_us = least_step(scheduler)
        print(f"{num_requests:>8,} {num_blocks:>10,} {plan_us:>9.1f} {apply_us:>9.1f} {(plan_us + apply_us) / num_requests:>13.2f}")

    print(f"a step of 1,024: {sum(least_step(scheduler)):,.1f} us")
    requests = waiting_requests(10_000)
    began = time.process_time()
    for request in requests:
        scheduler.add(request)
    print(f"adding 10,000 behind them: {(time.process_time() - began) / 10_000 * 1e6:.1f} us each")
    print(f"a step of 1,024 with 10,000 waiting: {sum(least_step(scheduler)):,.1f} us")
    for name, ids in (
        ("waiting", [f"waiting-{number}" for number in range(4000, 5024)]),
        ("running", [f"request-{number}" for number in range(1024)]),
    ):
        began = time.process_time()
        num_ended = len(scheduler.abort(ids))
        print(f"aborting {num_ended:,} {name} ones: {(time.process_time() - began) / num_ended * 1e6:.1f} us each")


if __name__ == "__main__":
    main()
