"""The study's record while it runs: a new run, or the one that was interrupted.

A study is resumed only where its numbers compare: the same model, workload, machine, vLLM and space.
Anything else is refused with what differs. Engines that a killed tuner left in the record are marked; what
they measured before stays.
"""

from dataclasses import dataclass
from typing import Any

from autotune.errors import UsageError
from autotune.store.models import RunRow, utc_now
from autotune.store.recommendation import Recommendation
from autotune.store.store import Store
from autotune.tuner.plan import Plan


@dataclass(slots=True)
class Session:
    """``spent_before_s`` is the time that earlier runs of the study used; ``resumed`` says if there were any."""

    store: Store
    run_id: int
    spent_before_s: float
    resumed: bool
    previous: Recommendation | None

    @classmethod
    def open(cls, plan: Plan, store: Store) -> "Session":
        """Start or resume the study. Raises ``UsageError`` where the stored one asked another question."""
        row = store.run(plan.study)
        if row is None:
            host_id = store.record_host(plan.host.fingerprint(), plan.host.to_dict())
            run_id = store.start_run(plan.study, host_id, plan.identity(), _settings(plan))
            return cls(store, run_id, 0.0, False, None)
        refuse_another_question(row, plan)
        store.interrupt_unfinished_boots(row.id)
        store.update_run(row.id, status="running", settings=_settings(plan))
        previous = Recommendation.from_json(row.result["recommendation"]) if row.result else None
        return cls(store, row.id, row.spent_s, True, previous)

    def spend(self, spent_s: float) -> None:
        """Keep the time used so far in this process, on top of earlier runs."""
        self.store.update_run(self.run_id, spent_s=self.spent_before_s + spent_s)

    def interrupted(self) -> None:
        """The person stopped the study; it can be resumed."""
        self.store.update_run(self.run_id, status="interrupted")

    def finished(self, result: dict[str, Any]) -> None:
        """The study ended with a result."""
        self.store.update_run(self.run_id, status="finished", result=result, finished_at=utc_now())


def refuse_another_question(row: RunRow, plan: Plan) -> None:
    """Raise ``UsageError`` where a stored study cannot go on as ``plan``."""
    now = plan.identity()
    changed = [name for name in now if row.identity.get(name) != now[name]]
    if changed:
        shown = ", ".join(f"{n} was {row.identity.get(n)!r}, is {now[n]!r}" for n in changed[:3])
        raise UsageError(
            f"the study {plan.study} asked something else ({shown}), so its numbers do not compare. "
            "Give another --study, or the same question."
        )


def _settings(plan: Plan) -> dict[str, Any]:
    s = plan.settings
    return {
        "budget_s": s.budget_s,
        "trials": s.trials,
        "objective": plan.objective.identity(),
        "seed": s.seed,
        "sampler": s.sampler,
        "vllm_python": str(plan.install.python),
        "vllm_args": list(s.vllm_args),
        "incumbents": {i.name: {"flags": dict(i.config.flags), "env": dict(i.config.env)} for i in plan.incumbents},
    }
