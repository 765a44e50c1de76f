"""``autotune run`` as one function: prepare, tune or resume, write the files, give the recommendation."""

from typing import Any

from autotune.engine.gates import find_tenants, refuse_tenants
from autotune.engine.reap import find_leftovers, reap
from autotune.errors import StoreError, UsageError
from autotune.export import shell, vllm
from autotune.export.files import write_atomic
from autotune.export.registry import register
from autotune.host.detect import open_nvml
from autotune.report.progress import RunProgress, run_progress
from autotune.report.records import trial_records
from autotune.store.recommendation import Recommendation
from autotune.store.store import Store
from autotune.tuner.faults import named_faults
from autotune.tuner.plan import Plan
from autotune.tuner.prepare import prepare
from autotune.tuner.session import Session
from autotune.tuner.settings import RunSettings
from autotune.tuner.stop import StopFlag
from autotune.tuner.tune import Tuner


def run_study(settings: RunSettings) -> Recommendation:
    """Run or resume the study that ``settings`` describe and write its folder.

    Raises ``UsageError`` for bad input, ``EnvironmentFault`` where the machine is at fault, ``StoreError`` and
    ``Interrupted``.
    """
    plan = prepare(settings)
    plan.folder.create()
    stop = StopFlag()
    with named_faults(), plan.folder.locked(), stop.on_signals(), run_progress() as progress:
        store = Store.open(plan.storage)
        try:
            with store.locked(plan.study):
                return _tune(plan, store, progress, stop)
        finally:
            store.close()


def _tune(plan: Plan, store: Store, progress: RunProgress, stop: StopFlag) -> Recommendation:
    session = Session.open(plan, store)
    for line in [*headline(plan, session), *clear_the_ground(plan)]:
        progress.note(line)
    recommendation = Tuner(plan, session, progress, stop).run()
    session.finished({"recommendation": recommendation.to_json()})
    write_result(plan, store, recommendation)
    progress.note(f"Wrote {plan.folder.best}: vllm.yaml, launch.sh, result.json.")
    try:
        register(recommendation)
    except UsageError as error:
        progress.note(f"Note: `autotune serve` will not know of this study: {error}")
    return recommendation


def write_result(plan: Plan, store: Store, recommendation: Recommendation) -> None:
    """Write ``OUT/best/``: for ``vllm serve --config``, for a shell, and everything that was measured."""
    best = plan.folder.best
    write_atomic(best / "vllm.yaml", vllm.render(recommendation))
    write_atomic(best / "launch.sh", shell.render(recommendation), executable=True)
    write_atomic(best / "result.json", _result_json(plan, store, recommendation))


def headline(plan: Plan, session: Session) -> list[str]:
    """What a person should know before the first boot."""
    limit = f"{plan.settings.trials} trials" if plan.settings.budget_s is None else f"{plan.settings.budget_s:.0f} s"
    lines = [
        *plan.remarks,
        f"{plan.device.name}; vLLM {plan.install.version} in {plan.install.python}; model {plan.model.name}.",
        f"Workload {plan.workload.name}, {plan.concurrency} in flight; objective {plan.settings.objective}; {limit}.",
        f"Search space {plan.space.chosen_because}; {len(plan.space.parameters)} parameters. "
        f"Folder {plan.folder.root}.",
    ]
    return [*lines, "Resuming: what was measured before counts."] if session.resumed else lines


def clear_the_ground(plan: Plan) -> list[str]:
    """End what a killed tuner of this study left, look for other tenants, and say both.

    Raises ``EnvironmentFault`` where a tenant makes measuring worthless.
    """
    lines = []
    if leftovers := find_leftovers(plan.study):
        reap(leftovers)
        lines.append(f"Ended {len(leftovers)} processes that an earlier, killed run of this study left behind.")
    nvml = open_nvml() if plan.device.gpu else None
    tenants = find_tenants(gpu=plan.device.gpu, nvml=nvml, usable_cores=plan.host.cpu.usable_cores)
    refuse_tenants(tenants)
    return [*lines, *(f"Note: {tenant.text}." for tenant in tenants)]


def _result_json(plan: Plan, store: Store, recommendation: Recommendation) -> str:
    import orjson

    row = store.run(plan.study)
    if row is None:
        raise StoreError(f"the study {plan.study} is gone from {plan.storage}. Was the database replaced meanwhile?")
    result: dict[str, Any] = {
        "recommendation": recommendation.to_json(),
        "host": plan.host.to_dict(),
        "vllm": {"version": plan.install.version, "distribution": plan.install.dist_name},
        "identity": plan.identity(),
        "settings": row.settings,
        "spent_s": row.spent_s,
        "trials": trial_records(row),
    }
    return orjson.dumps(result, option=orjson.OPT_INDENT_2, default=str).decode() + "\n"
