"""``autotune run`` as one function: prepare, tune or resume, write the files, give the recommendation."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autotune.engine.gates import find_tenants, refuse_tenants
from autotune.engine.reap import find_leftovers, reap
from autotune.errors import StoreError, UsageError
from autotune.export import shell, vllm
from autotune.export.files import write_atomic
from autotune.export.registry import register
from autotune.host.detect import open_nvml
from autotune.report.figures import figure
from autotune.report.progress import RunProgress, run_progress
from autotune.report.records import trial_records
from autotune.store.recommendation import Recommendation
from autotune.store.store import Store
from autotune.tuner.faults import named_faults
from autotune.tuner.frontier import frontier
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
    tuner = Tuner(plan, session, progress, stop)
    recommendation = tuner.run()
    modes = {name: mode.to_json() for name, mode in tuner.modes.items()}
    session.finished({"recommendation": recommendation.to_json(), **({"modes": modes} if modes else {})})
    write_result(plan, store, recommendation, tuner.modes)
    for line in show_frontier(plan, store, tuner.modes):
        progress.note(line)
    if recommendation.verdict != "not-measured":
        progress.note(f"Wrote {plan.folder.best}: {', '.join(sorted(p.name for p in plan.folder.best.iterdir()))}.")
    try:
        for finished in (recommendation, *tuner.modes.values()):
            register(finished)
    except UsageError as error:
        progress.note(f"Note: `autotune serve` will not know of this study: {error}")
    return recommendation


def write_result(plan: Plan, store: Store, recommendation: Recommendation, modes: Mapping[str, Recommendation]) -> None:
    """Write ``OUT/best/``: for ``vllm serve --config``, for a shell, and everything that was measured.

    Each mode gets the same files in a folder of its own beside it. Without a figure of the defaults there is nothing to
    write.
    """
    for name, mode in modes.items():
        if mode.verdict != "not-measured":
            _write_launchers(plan.folder.root / name, mode)
            write_atomic(plan.folder.root / name / "recommendation.json", _json(mode.to_json()))
    if recommendation.verdict != "not-measured":
        _write_launchers(plan.folder.best, recommendation)
        write_atomic(plan.folder.best / "result.json", _result_json(plan, store, recommendation, modes))


def _write_launchers(folder: Path, recommendation: Recommendation) -> None:
    """The files that start an engine; none, also of an earlier end of the study, where nothing was found that works."""
    if not recommendation.recommends:
        for name in ("vllm.yaml", "launch.sh"):
            (folder / name).unlink(missing_ok=True)
        return
    write_atomic(folder / "vllm.yaml", vllm.render(recommendation))
    write_atomic(folder / "launch.sh", shell.render(recommendation), executable=True)


def show_frontier(plan: Plan, store: Store, modes: Mapping[str, Recommendation]) -> list[str]:
    """The frontier and the pick of each mode, a line each; nothing without modes."""
    row = store.run(plan.study)
    if row is None or not modes:
        return []
    lines = ["Frontier (throughput against latency, of everything measured on its own boot):"]
    lines += [f"  {spot.text()}" for spot in frontier(plan, row)]
    for name, mode in modes.items():
        pick = str(mode.config) if mode.verdict == "adopt" else mode.verdict
        place = "" if mode.verdict == "not-measured" else f" {plan.folder.root / name}"
        best = f", {figure(mode.best.value)} {mode.unit} with {plan.objective.load_of(name)}" if mode.best else ""
        lines.append(f"  {name}: {pick}{best}; gain over vLLM's defaults: {mode.gain_text()}.{place}")
    return lines


def headline(plan: Plan, session: Session) -> list[str]:
    """What a person should know before the first boot."""
    limit = f"{plan.settings.trials} trials" if plan.settings.budget_s is None else f"{plan.settings.budget_s:.0f} s"
    lines = [
        *plan.remarks,
        f"{plan.device.name}; vLLM {plan.install.version} in {plan.install.python}; model {plan.model.name}.",
        f"Workload {plan.workload.name}, {plan.objective.load}; objective {plan.objective.title()}; {limit}.",
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


def _json(value: Any) -> str:
    import orjson

    return orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode() + "\n"


def _result_json(plan: Plan, store: Store, recommendation: Recommendation, modes: Mapping[str, Recommendation]) -> str:
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
    if modes:
        result["modes"] = {name: mode.to_json() for name, mode in modes.items()}
        result["frontier"] = [asdict(spot) for spot in frontier(plan, row)]
    return _json(result)
