"""Cuts a space file down to what this device, this model and this vLLM take.

In order: flags that the person fixed leave the search; parameters and values go whose flag, choice or
``when`` does not hold here, each with its reason; ``max-model-len`` is fixed to what the workload needs;
conditions on parameters that are no longer in the space are settled; seeds that use what went are dropped.

A parameter of a person's own file that vLLM does not know is an error, not a silent drop: it is a typing
mistake more often than not, and ``when: {vllm: ...}`` says that it is meant for another version.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.errors import UsageError
from autotune.space.conditions import why_not
from autotune.space.config import FlagValue, LaunchConfig
from autotune.space.defaults import find_defaults
from autotune.space.facts import DeviceFacts, VllmFacts
from autotune.space.model import ModelFacts
from autotune.space.parameters import Dropped, Parameter, SearchSpace
from autotune.space.problems import suggestion
from autotune.space.rules import Needs, contains, is_number
from autotune.space.schema import ParameterEntry, SpaceFile, ValueEntry

_LENGTH = "max-model-len"
_CHECKPOINT_FORMATS = ("awq", "gptq", "auto_awq", "auto_gptq", "modelopt", "moe_wna16", "compressed-tensors")


@dataclass(frozen=True, slots=True)
class _Place:
    """Everything that a parameter or value is judged against."""

    device: DeviceFacts
    vllm: VllmFacts
    model: ModelFacts


def cut_space(
    file: SpaceFile,
    device: DeviceFacts,
    vllm: VllmFacts,
    model: ModelFacts,
    *,
    workload_max_len: int | None = None,
    overrides: LaunchConfig | None = None,
    chosen_because: str = "",
) -> SearchSpace:
    """The search space for one device, vLLM and model.

    ``workload_max_len`` is the longest request of the workload, prompt and answer, in tokens. ``overrides``
    are flags and variables that the person fixed for every engine. Raises ``UsageError`` where an override
    or a parameter of a person's own file is no flag of this vLLM, the workload is longer than the model
    allows, or nothing is left to search.
    """
    place, given = _Place(device, vllm, model), overrides or LaunchConfig()
    _check_overrides(given, vllm)
    fixed, dropped = _fixed(file, vllm)
    fixed = _with_length(fixed.merged(given), model, workload_max_len)
    found = [_parameter(name, entry, file, place, given) for name, entry in file.parameters.items()]
    dropped += [Dropped(name, None, why) for name, why in file.omit.items()]
    dropped += [drop for cut in found for drop in cut.dropped]
    kept, unmet = _settled([cut for cut in found if cut.parameter.values], fixed)
    dropped += unmet
    if not kept:
        raise UsageError(_nothing_left(file, dropped))
    space = SearchSpace(
        name=file.name,
        parameters=tuple(cut.parameter for cut in kept),
        fixed=fixed,
        chosen_because=chosen_because,
        rules=file.comparisons,
        needs=tuple(need for cut in kept for need in cut.needs),
        vllm_defaults=find_defaults(device, vllm, workload_max_len or model.max_position_embeddings),
    )
    seeds, refused = _seeds(file, space, place, dropped)
    return replace(space, seeds=seeds, dropped=tuple(dropped + refused))


@dataclass(frozen=True, slots=True)
class _Cut:
    """A parameter with what is left of its values (none: it is dropped)."""

    parameter: Parameter
    dropped: tuple[Dropped, ...] = ()
    needs: tuple[Needs, ...] = ()


def _parameter(name: str, entry: ParameterEntry, file: SpaceFile, place: _Place, given: LaunchConfig) -> _Cut:
    reason = f"fixed at {given.get(name)} for every engine" if given.get(name) is not None else None
    reason = reason or why_not(entry.when, place.device, place.vllm.version, place.model)
    reason = reason or _unknown_flag(name, file.written_at(name), place.vllm)
    if reason:
        return _Cut(Parameter(name, ()), (Dropped(name, None, reason),))
    judged = [(value, _value_refused(name, value, file.written_at(name), place)) for value in entry.entries()]
    kept = [value for value, why in judged if not why]
    values = tuple(value.value for value in kept)
    parameter = Parameter(
        name=name,
        values=values,
        scope=entry.scope,
        ordered=entry.ordered if entry.ordered is not None else _all_numbers(values),
        precision=entry.precision,
        requires=_tuples(entry.when.parameter),
        why=entry.why,
    )
    needs = [Needs(name, v.value, _tuples(v.when.parameter)) for v in kept if v.when.parameter]
    return _trimmed(_Cut(parameter, tuple(Dropped(name, v.value, why) for v, why in judged if why), tuple(needs)))


def _trimmed(cut: _Cut) -> _Cut:
    """Without values if only the default is left: that is nothing to search."""
    if any(value is not None for value in cut.parameter.values):
        return cut
    reason = Dropped(cut.parameter.name, None, "only the default is left")
    return replace(cut, parameter=replace(cut.parameter, values=()), dropped=(*cut.dropped, reason))


def _unknown_flag(name: str, written_at: str | None, vllm: VllmFacts) -> str | None:
    if not vllm.known or name in vllm.flags:
        return None
    reason = f"vLLM {vllm.version} has no flag --{name}"
    if written_at:
        raise UsageError(f"{written_at}: {reason}{_near(name, vllm)}")
    return reason


def _value_refused(name: str, entry: ValueEntry, written_at: str | None, place: _Place) -> str | None:
    reason = why_not(entry.when, place.device, place.vllm.version, place.model)
    if reason or entry.value is None:
        return reason
    reason = _not_a_choice(name, entry.value, place.vllm)
    if reason and written_at:
        raise UsageError(f"{written_at}: {reason}")
    return reason or _model_refuses(name, entry.value, place.model)


def _not_a_choice(name: str, value: FlagValue, vllm: VllmFacts) -> str | None:
    choices = vllm.flags.get(name) if vllm.known else None
    shown = [str(choice) for choice in choices or ()]
    if not shown or isinstance(value, bool) or str(value) in shown:
        return None
    return f"vLLM {vllm.version} does not take --{name} {value}; it takes {', '.join(shown)}"


def _model_refuses(name: str, value: FlagValue, model: ModelFacts) -> str | None:
    if name != "quantization":
        return None
    if model.quantization:
        return f"the checkpoint is quantized already ({model.quantization})"
    if str(value).startswith(_CHECKPOINT_FORMATS):
        return f"{value} needs a checkpoint in that format, this one is not quantized"
    return None


def _check_overrides(given: LaunchConfig, vllm: VllmFacts) -> None:
    for name, value in given.flags:
        if vllm.known and name not in vllm.flags:
            raise UsageError(f"vLLM {vllm.version} has no flag --{name}{_near(name, vllm)}")
        reason = _not_a_choice(name, value, vllm)
        if reason:
            raise UsageError(reason)


def _near(name: str, vllm: VllmFacts) -> str:
    return suggestion(name, list(vllm.flags)) if len(vllm.flags) > 20 else ""


def _fixed(file: SpaceFile, vllm: VllmFacts) -> tuple[LaunchConfig, list[Dropped]]:
    unknown = [name for name in file.fixed.flags if vllm.known and name not in vllm.flags]
    kept = {name: value for name, value in file.fixed.flags.items() if name not in unknown}
    reasons = [Dropped(n, file.fixed.flags[n], f"vLLM {vllm.version} has no flag --{n}") for n in unknown]
    return LaunchConfig.of(kept, file.fixed.env), reasons


def _with_length(fixed: LaunchConfig, model: ModelFacts, needed: int | None) -> LaunchConfig:
    """Fix ``max-model-len`` to the workload's need, unless the person fixed it."""
    if needed is None:
        return fixed
    longest, asked = model.max_position_embeddings, fixed.get(_LENGTH)
    if longest is not None and needed > longest:
        raise UsageError(
            f"the workload needs {needed} tokens (prompt and answer), the model takes {longest};"
            " choose a shorter workload"
        )
    if isinstance(asked, int) and 0 < asked < needed:
        raise UsageError(f"--{_LENGTH} {asked} is shorter than the workload's {needed} tokens")
    return fixed if asked is not None else fixed.merged(LaunchConfig.of({_LENGTH: needed}))


def _settled(cuts: list[_Cut], fixed: LaunchConfig) -> tuple[list[_Cut], list[Dropped]]:
    """Judge conditions on parameters outside the space by their fixed value, until nothing changes."""
    kept, dropped = cuts, list[Dropped]()
    while True:
        names = {cut.parameter.name for cut in kept}
        judged = [_without_unmet(cut, names, fixed) for cut in kept]
        dropped += [drop for cut in judged for drop in cut.dropped]
        kept = [cut for cut in judged if cut.parameter.values]
        if len(kept) == len(judged):
            return kept, dropped


def _without_unmet(cut: _Cut, names: set[str], fixed: LaunchConfig) -> _Cut:
    parameter = cut.parameter
    other = _unmet(parameter.requires, names, fixed)
    if other is not None:
        gone = Dropped(parameter.name, None, f"needs another value of {other}, which is not searched")
        return _Cut(replace(parameter, values=()), (gone,))
    unmet = [(need, name) for need in cut.needs if (name := _unmet(need.others, names, fixed)) is not None]
    refused = tuple(need.value for need, _ in unmet)
    return _trimmed(
        _Cut(
            replace(
                parameter,
                values=tuple(v for v in parameter.values if not contains(refused, v)),
                requires=_inside(parameter.requires, names),
            ),
            tuple(
                Dropped(parameter.name, need.value, f"needs another value of {name}, which is not searched")
                for need, name in unmet
            ),
            tuple(
                replace(need, others=_inside(need.others, names))
                for need in cut.needs
                if not contains(refused, need.value) and _inside(need.others, names)
            ),
        )
    )


def _unmet(requires: Mapping[str, tuple[FlagValue | None, ...]], names: set[str], fixed: LaunchConfig) -> str | None:
    outside = {other: allowed for other, allowed in requires.items() if other not in names}
    return next((o for o, allowed in outside.items() if not contains(allowed, fixed.get(o))), None)


def _inside(
    requires: Mapping[str, tuple[FlagValue | None, ...]], names: set[str]
) -> dict[str, tuple[FlagValue | None, ...]]:
    return {other: allowed for other, allowed in requires.items() if other in names}


def _seeds(
    file: SpaceFile, space: SearchSpace, place: _Place, dropped: Iterable[Dropped]
) -> tuple[tuple[LaunchConfig, ...], list[Dropped]]:
    gone = {(drop.parameter, drop.value) for drop in dropped}
    seeds, refused = list[LaunchConfig](), list[Dropped]()
    seen = {space.effective(LaunchConfig())}
    for seed in file.seeds:
        config = LaunchConfig.of({n: v for n, v in seed.flags.items() if v is not None})
        reason = _seed_refused(config, space, place, gone)
        if reason:
            refused.append(Dropped(f"seed {seed.name}", None, reason))
        elif space.effective(config) not in seen:
            seen.add(space.effective(config))
            seeds.append(config)
    return tuple(seeds), refused


def _seed_refused(
    config: LaunchConfig, space: SearchSpace, place: _Place, gone: set[tuple[str, FlagValue | None]]
) -> str | None:
    names = {parameter.name for parameter in space.parameters}
    for name, value in config.flags:
        if name not in names:
            return f"{name} is not searched here"
        if (name, value) in gone:
            return f"{name} {value} is not possible here"
        reason = _not_a_choice(name, value, place.vllm) or _model_refuses(name, value, place.model)
        if reason:
            return reason
    return space.broken_rule(dict(config.flags))


def _nothing_left(file: SpaceFile, dropped: Sequence[Dropped]) -> str:
    reasons = "; ".join(f"{drop.parameter}: {drop.reason}" for drop in dropped[:2])
    return f"the space {file.name!r} leaves nothing to search here ({reasons})"


def _tuples(
    conditions: Mapping[str, Sequence[FlagValue | None]],
) -> dict[str, tuple[FlagValue | None, ...]]:
    return {name: tuple(values) for name, values in conditions.items()}


def _all_numbers(values: tuple[FlagValue | None, ...]) -> bool:
    return all(is_number(value) for value in values if value is not None)
