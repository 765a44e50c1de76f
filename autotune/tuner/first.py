"""What a study tries first: what runs in production, the last winner here, rules of thumb, vLLM's own modes."""

from autotune.export.registry import Wanted, entries, lookup
from autotune.search.domain import Domain
from autotune.search.planner import seeds
from autotune.search.types import Origin
from autotune.space.config import LaunchConfig
from autotune.tuner.plan import Plan


def first_configs(plan: Plan, domain: Domain) -> list[tuple[Origin, LaunchConfig]]:
    """Configurations with their origin, in the order in which they are tried after the baseline."""
    return seeds(plan.space, [i.config for i in plan.incumbents], _champions(plan, domain))


def _champions(plan: Plan, domain: Domain) -> list[LaunchConfig]:
    """What an earlier study of this model on this device recommended, where the space can express it."""
    wanted = Wanted(
        device=plan.device.name,
        cpu=plan.device.kind == "cpu",
        model=plan.model.serve,
        model_revision=plan.model.revision,
        vllm_version=plan.install.version,
        host_fingerprint=plan.host.fingerprint(),
        workload=plan.workload.name,
        objective=plan.settings.objective,
    )
    match = lookup(wanted, entries())
    config = match.recommendation.config if match and match.recommendation.verdict == "adopt" else LaunchConfig()
    full = plan.space.fixed.merged(config)
    return [config] if config.flags and domain.config(domain.assignment(full)) == full else []
