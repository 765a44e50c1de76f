"""The quality guard: every precision class of a study is compared with the model as published, once.

    engine of the baseline ──▶ the reference, read twice (its own noise floor)
    first engine of a class ─▶ its reading ─▶ comparison ─▶ within, over or unsure, kept in the store

What is over the limit, unsure, or cannot be measured is told to Optuna as a constraint, not booted again and never
exported. A flag that did nothing makes its configuration infeasible: it is its neighbour under another name. The
class of the baseline is never refused, because a person has chosen it.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from autotune.engine.effect import Effect, without_effect
from autotune.engine.types import BootFailed
from autotune.quality.ask import QualityUnavailable, Server, read, tokenize
from autotune.quality.compare import Comparison, compare
from autotune.quality.levels import KNOWS_NOTHING, Judgement, find_level, judge
from autotune.quality.reading import Reading
from autotune.quality.texts import load_texts
from autotune.search.types import Feasibility, Outcome, Predictor
from autotune.space.config import LaunchConfig
from autotune.store.models import QualityRow
from autotune.store.store import Store
from autotune.tuner.engines import Engines, Running
from autotune.tuner.plan import Plan
from autotune.tuner.precision import PrecisionClass, as_published, guarded, precision_class, unmeasurable
from autotune.tuner.variants import VARIANT

ROLE = "quality"
CONSTRAINT = "quality"
MET = -1.0
UNKNOWN_EXCESS = 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """One precision class: what was found, and what it means under the study's level."""

    precision: PrecisionClass
    comparison: Comparison
    effect: Effect
    judgement: Judgement
    seconds: float


class QualityGuard:
    """Measures classes on running engines and answers for every configuration of a study.

    ``note`` gets lines for the person; ``keep_waiting`` may raise while an answer is awaited. ``always``: guard even
    where the space holds nothing to guard.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        note: Callable[[str], None],
        keep_waiting: Callable[[], None],
        *,
        always: bool = False,
    ) -> None:
        self._plan = plan
        self._store = store
        self._note = note
        self._keep_waiting = keep_waiting
        self._always = always
        self._level = find_level(plan.settings.max_quality_loss)
        self._texts = load_texts(plan.settings.quality_data)
        self._scope = _scope(plan, self._texts.digest)
        self._baseline = precision_class(plan.space, LaunchConfig())
        self._unavailable = unmeasurable(plan.model, plan.space.fixed)
        self._reference: Reading | None = None
        self._noise: Measured | None = None
        self._measured: dict[PrecisionClass, Measured] = {}
        self._failed: dict[PrecisionClass, str] = {}
        self._silent: dict[tuple[str, str], str] = {}
        self._load()

    @property
    def active(self) -> bool:
        """Whether the space holds anything to guard."""
        return self._always or any(p.name in guarded(self._plan.space) for p in self._plan.space.parameters)

    @property
    def constraints(self) -> tuple[str, ...]:
        """The constraint keys that every measured outcome of the study carries."""
        return (CONSTRAINT,) if self.active else ()

    @property
    def unavailable(self) -> str | None:
        """Why nothing can be measured in this study, None where it can."""
        return self._unavailable

    @property
    def noise(self) -> Measured | None:
        """The reference against itself."""
        return self._noise

    @property
    def classes(self) -> tuple[Measured, ...]:
        """Every class that was measured, the model as published left out."""
        return tuple(self._measured.values())

    @property
    def silent(self) -> dict[str, str]:
        """Flags with their values that did nothing, and what shows it."""
        return {f"--{name} {value}": why for (name, value), why in self._silent.items()}

    def find(self, config: LaunchConfig) -> Measured | None:
        """What was measured for a configuration's class."""
        return self._measured.get(self._class(config))

    def veto(self, config: LaunchConfig) -> str | None:
        """Why a configuration must not be used, as far as is known by now; None where nothing speaks against it."""
        chosen = self._class(config)
        if chosen in (self._baseline, PrecisionClass()):
            return None
        for name, value in chosen.flags:
            if (why := self._silent.get((name, str(value)))) is not None:
                return f"--{name} {value} does nothing here: {why}"
        found = self._measured.get(chosen)
        if found is not None:
            return None if found.judgement.verdict == "within" else f"{chosen}: {found.judgement.reason}"
        reason = self._unavailable or self._failed.get(chosen)
        if reason is None or self._plan.settings.allow_unverified_precision:
            return None
        return f"{chosen} changes what the model computes, and its quality cannot be measured: {reason}"

    def refuses(self, config: LaunchConfig) -> str | None:
        """Why a configuration must not be exported: like ``veto``, and what was never measured is refused too."""
        if (reason := self.veto(config)) is not None:
            return reason
        chosen = self._class(config)
        known = chosen in (self._baseline, PrecisionClass()) or chosen in self._measured
        if known or self._plan.settings.allow_unverified_precision:
            return None
        return f"{chosen} changes what the model computes, and its quality was not measured"

    def guarding(self, feasible: Predictor) -> Predictor:
        """A predictor that also rules out what the guard refuses."""

        def predict(config: LaunchConfig, /) -> Feasibility:
            reason = self.veto(config)
            return feasible(config) if reason is None else Feasibility(False, reason)

        return predict

    def needs_reference(self, config: LaunchConfig) -> bool:
        """Whether the model as published must be booted before ``config`` can be judged."""
        missing = self._reference is None and self._unavailable is None
        return self.active and missing and not self._class(config).published

    def take_reference(self, engines: Engines, config: LaunchConfig) -> None:
        """Boot ``config`` with the model as published and read it. No other engine may be running."""
        try:
            with engines.boot(as_published(self._plan.space, config), role=ROLE) as running:
                self._read_reference(running)
        except BootFailed as error:
            self._give_up(f"the model as published does not start here ({error.failure.cls.name})")

    def without_effect(self, running: Running) -> str | None:
        """Why the engine is no configuration of its own: flags that did nothing. None where all did something."""
        chosen = self._class(running.config)
        if self._noise is None or chosen in (self._baseline, PrecisionClass()):
            return None
        own = {n: v for n, v in chosen.flags if (n, v) not in self._baseline.flags}
        found = without_effect(own, Effect.of(running.engine.report), self._noise.effect)
        for name, why in found.items():
            self._silent[name, str(own[name])] = why
        return self.veto(running.config) if found else None

    def judged(self, outcome: Outcome, running: Running) -> Outcome:
        """The outcome with the quality of its engine as a constraint; measures the class if it is new."""
        if self._always or (self.active and outcome.status == "measured"):
            self._examine(running)
        if not self.active or outcome.status != "measured":
            return outcome
        reason = self.refuses(running.config)
        excess = MET if reason is None else self._excess(running.config)
        return replace(
            outcome,
            violations={**outcome.violations, CONSTRAINT: excess},
            reason=reason or outcome.reason,
        )

    def _examine(self, running: Running) -> None:
        chosen = self._class(running.config)
        if self._unavailable is not None:
            return
        if chosen.published:
            if self._reference is None:
                self._read_reference(running)
        elif chosen not in self._measured and chosen not in self._failed:
            self._read_class(chosen, running)

    def _read_reference(self, running: Running) -> None:
        """The model as published, twice: what it gives, and how much it differs from itself."""
        try:
            server = _server(running)
            prompts = tokenize(server, self._texts)
            first, second = (read(server, prompts, self._keep_waiting) for _ in range(2))
        except QualityUnavailable as error:
            self._give_up(str(error))
            return
        noise = compare(first, second)
        if noise.reference_perplexity > KNOWS_NOTHING:
            self._give_up(
                f"the model as published does not know the texts (perplexity {noise.reference_perplexity:,.0f}), "
                "as if its weights were random"
            )
            return
        self._keep(PrecisionClass(), noise, Effect.of(running.engine.report), first.seconds + second.seconds, first)
        self._note(
            f"Quality: reference read, perplexity {noise.reference_perplexity:.2f} over {noise.positions} positions "
            f"of {self._texts.source}; against itself KL {noise.kl.value:.6f}."
        )

    def _read_class(self, chosen: PrecisionClass, running: Running) -> None:
        if self._reference is None:
            self._failed[chosen] = "there is no reference to compare with"
            return
        try:
            reading = read(_server(running), self._reference.prompts, self._keep_waiting)
        except QualityUnavailable as error:
            self._failed[chosen] = str(error)
            self._note(f"Quality of {chosen} cannot be measured: {error}")
            return
        found = compare(self._reference, reading)
        self._keep(chosen, found, Effect.of(running.engine.report), reading.seconds)
        self._note(f"Quality of {chosen}: {self._measured[chosen].judgement.reason}")

    def _give_up(self, reason: str) -> None:
        self._unavailable = reason
        self._note(f"Quality cannot be measured: {reason}. What changes precision is not recommended.")

    def _keep(
        self,
        precision: PrecisionClass,
        found: Comparison,
        effect: Effect,
        seconds: float,
        reading: Reading | None = None,
    ) -> None:
        self._store.add_quality(
            self._scope,
            self._key(precision),
            about={"precision": dict(precision.flags), "texts": self._texts.source, **_about(self._plan)},
            comparison=found.to_json(),
            effect=effect.to_json(),
            seconds=seconds,
            reading=reading.to_bytes() if reading else None,
        )
        self._remember(precision, found, effect, seconds, reading)

    def _remember(
        self, precision: PrecisionClass, found: Comparison, effect: Effect, seconds: float, reading: Reading | None
    ) -> None:
        if precision.published:
            self._reference = reading
            within = Judgement("within", "the model as published")
            self._noise = Measured(precision, found, effect, within, seconds)
            return
        noise = self._noise.comparison if self._noise else None
        self._measured[precision] = Measured(precision, found, effect, judge(found, self._level, noise), seconds)

    def _load(self) -> None:
        """What earlier runs have measured; the reference stands first."""
        for row in sorted(self._store.qualities(self._scope), key=lambda row: row.precision_key != ""):
            self._take(row)

    def _take(self, row: QualityRow) -> None:
        precision = PrecisionClass(tuple(sorted(row.about["precision"].items())))
        if row.precision_key != self._key(precision):
            return
        reading = Reading.from_bytes(row.reading) if row.reading else None
        found, effect = Comparison.from_json(row.comparison), Effect(**row.effect)
        self._remember(precision, found, effect, row.seconds, reading)

    def _key(self, precision: PrecisionClass) -> str:
        """The class's name in the store; another revision of a checkpoint is another class."""
        variant = self._plan.variants.get(str(dict(precision.flags).get(VARIANT)))
        return precision.key if variant is None else f"{precision.key}-{variant.revision[-16:]}"

    def _class(self, config: LaunchConfig) -> PrecisionClass:
        return precision_class(self._plan.space, config)

    def _excess(self, config: LaunchConfig) -> float:
        found = self.find(config)
        return max(found.judgement.excess, 1e-3) if found else UNKNOWN_EXCESS


def _server(running: Running) -> Server:
    return Server(running.engine.base_url, running.engine.model_name)


def _about(plan: Plan) -> dict[str, str]:
    return {
        "model": plan.model.serve,
        "revision": plan.model.revision,
        "vllm": f"{plan.install.dist_name} {plan.install.version}",
        "device": plan.device.name,
    }


def _scope(plan: Plan, texts: str) -> str:
    """Names what a quality is measured for; the context's length counts, for the texts are cut to it."""
    words = [*_about(plan).values(), texts, str(plan.space.fixed.get("max-model-len"))]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]
