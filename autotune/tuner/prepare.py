"""From what a person asked to a decided study: looks at the machine, reads files, starts nothing."""

from pathlib import Path

from autotune.engine.flags import load_flags
from autotune.engine.install import VllmInstall, resolve_install
from autotune.engine.vocabulary import read_vocabulary
from autotune.errors import UsageError
from autotune.host.detect import read_host
from autotune.host.select import select_device
from autotune.host.types import Device, Host
from autotune.load.types import AUTO_PROCESSES
from autotune.space.choose import choose_space
from autotune.space.cut import cut_space
from autotune.space.parameters import SearchSpace
from autotune.tuner.facts import device_facts, vllm_facts
from autotune.tuner.fixed_flags import parse_fixed
from autotune.tuner.folder import StudyFolder
from autotune.tuner.incumbents import Asked, Incumbent, IncumbentReader
from autotune.tuner.models import ModelChoice, choose_model
from autotune.tuner.objectives import make_objective
from autotune.tuner.plan import Plan, study_name
from autotune.tuner.precision import at_own_precision, unmeasurable
from autotune.tuner.settings import RunSettings
from autotune.tuner.variants import choose_variants, with_variants
from autotune.workload.load import load_workload
from autotune.workload.types import Workload, scaled

OUT = Path("autotune-out")
CONCURRENCY = {"cuda": 256, "cpu": 32}
# A GPU can outrun one client process; on a CPU every further one would take cores from the engine.
PROCESSES = {"cuda": AUTO_PROCESSES, "cpu": 1}


def prepare(settings: RunSettings) -> Plan:
    """The study that ``settings`` ask for on this machine.

    Raises ``UsageError`` for anything that cannot be used. Only the demonstration model is written, if it is used.
    """
    host = read_host()
    device = select_device(host, settings.gpu)
    install = resolve_install(settings.vllm_python)
    if install.problems:
        raise UsageError(f"vLLM {install.version} in {install.python} will not start: {install.problems[0]}")
    model = choose_model(settings.model)
    workload, remark = _workload(settings, model, device)
    variants = choose_variants(model, settings.variants)
    space = with_variants(_space(settings, device, host, install, model, workload), variants)
    incumbents, about = _incumbents(settings, device, install, model, workload, space)
    concurrency = settings.concurrency or CONCURRENCY[device.kind]
    objective = make_objective(settings.asked, workload.arrival, concurrency, PROCESSES[device.kind])
    study = settings.study or study_name(
        model.name, objective.slug, workload.name, device.class_hint or device.name, install.version
    )
    folder = StudyFolder(settings.out or OUT / study)
    return Plan(
        settings=settings,
        objective=objective,
        study=study,
        folder=folder,
        storage=settings.storage or folder.default_storage,
        host=host,
        device=device,
        install=install,
        model=model,
        workload=workload,
        concurrency=concurrency,
        space=space,
        variants=variants,
        warm_boots=settings.warm_boot is not False,
        live_limits=settings.live_limits is not False,
        remarks=tuple(r for r in (_demo_remark(model), remark, *about) if r),
        incumbents=incumbents,
    )


def _workload(settings: RunSettings, model: ModelChoice, device: Device) -> tuple[Workload, str | None]:
    name = settings.workload or ("demo" if model.demo or device.kind == "cpu" else "batch-512-256")
    workload = load_workload(name)
    longest = model.facts.max_position_embeddings
    return scaled(workload, longest) if longest else (workload, None)


def _space(
    settings: RunSettings, device: Device, host: Host, install: VllmInstall, model: ModelChoice, workload: Workload
) -> SearchSpace:
    facts = device_facts(device, host)
    file, because = choose_space(facts, settings.space)
    space = cut_space(
        file,
        facts,
        vllm_facts(install, load_flags(install)),
        model.facts,
        workload_max_len=workload.max_len_needed or None,
        overrides=parse_fixed(settings.vllm_args),
        chosen_because=because,
    )
    no_quality = None if settings.allow_unverified_precision else unmeasurable(model, space.fixed)
    return space if no_quality is None else at_own_precision(space, no_quality)


def _incumbents(
    settings: RunSettings,
    device: Device,
    install: VllmInstall,
    model: ModelChoice,
    workload: Workload,
    space: SearchSpace,
) -> tuple[tuple[Incumbent, ...], tuple[str, ...]]:
    asked = [Asked("from-command", text) for text in settings.from_command]
    asked += [Asked("from-config", text) for text in settings.from_config]
    if not asked:
        return (), ()
    reader = IncumbentReader(
        load_flags(install),
        read_vocabulary(install.package_dir),
        device,
        space,
        parse_fixed(settings.vllm_args),
        model.serve,
        workload.max_len_needed or None,
    )
    return reader.read(asked)


def _demo_remark(model: ModelChoice) -> str | None:
    if not model.demo:
        return None
    return (
        "No model was given: using the built-in demonstration model (tiny, Qwen3-shaped, random weights). "
        "Its figures say nothing about a real model; give one with --model."
    )
