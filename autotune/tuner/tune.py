"""The loop: baseline, incumbents, search, race, recommendation.

    ask ─▶ boot ─▶ measure ─▶ tell   until the budget, less the race's share, is used
    default, incumbents and finalists ─▶ race on fresh load ─▶ recommendation

Everything is written down as it happens. Killed at any moment, the same command goes on from the last
finished point: the search asks for the trial that was running once more, and a race keeps its whole rounds.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace

from autotune.engine.gates import MemoryGate, Strangers, gpu_gate, ram_gate
from autotune.engine.model_shape import ModelShape, read_model_shape
from autotune.errors import Interrupted
from autotune.host.detect import open_nvml
from autotune.report.progress import RunProgress, TrialLine
from autotune.search.domain import Domain
from autotune.search.noise import NoiseFloor, noise_floor
from autotune.search.samplers import Sampler
from autotune.search.study import StudySearcher, open_study
from autotune.search.surrogate import make_sampler
from autotune.search.types import GIVEN, Observation, Outcome, Suggestion
from autotune.space.config import LaunchConfig
from autotune.store.models import BootRow, RunRow
from autotune.store.recommendation import Recommendation
from autotune.tuner.ablate import Ablation, Ablator
from autotune.tuner.contenders import best_in, excesses, of_aspect, out_of_the_race, unmeasured, within_reach
from autotune.tuner.ending import NOTHING_ABLATED, Closer
from autotune.tuner.engines import Engines
from autotune.tuner.feasible import Feasible
from autotune.tuner.finals import Entrant, Finals
from autotune.tuner.first import first_configs
from autotune.tuner.judge import Judge
from autotune.tuner.physics import DevicePhysics
from autotune.tuner.plan import Plan
from autotune.tuner.points import stored_figure, window_s
from autotune.tuner.quality import QualityGuard
from autotune.tuner.quality_report import with_quality
from autotune.tuner.recommend import Searched, entrant, nearest_miss, nothing_better, recommend
from autotune.tuner.seat import Seat
from autotune.tuner.session import Session
from autotune.tuner.soak import Soaker
from autotune.tuner.spending import finalists_for, given, race_visits, study_budget
from autotune.tuner.stop import StopFlag
from autotune.tuner.trials import TrialRunner

MOST_KILLS = 2


class Tuner:
    """One study from its first boot, or from where it was interrupted, to its recommendation."""

    def __init__(
        self,
        plan: Plan,
        session: Session,
        progress: RunProgress,
        stop: StopFlag,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._session = session
        self._progress = progress
        self._stop = stop
        self._clock = clock
        self._started = clock()
        self._record = session.store.run(plan.study)
        domain = Domain(plan.space, plan.space.defaults, plan.space.seeds)
        shape = read_model_shape(plan.model.folder) if plan.model.folder else None
        feasible = Feasible(plan, domain, shape)
        self._quality = QualityGuard(plan, session.store, progress.note, stop.check)
        self._searcher = _searcher(plan, domain, self._quality, feasible, shape)
        boots = self._record.boots if self._record else []
        self._budget = study_budget(plan, boots, session.spent_before_s, len(self._searcher.history()), clock)
        self._judge = Judge(plan.device.total_bytes)
        self._engines = Engines(plan, session, self._budget, feasible, memory_gate(plan, stop), progress, stop, clock)
        self._seat = Seat(self._engines)
        self._trials = TrialRunner(
            plan,
            session.store,
            self._engines,
            self._seat,
            self._judge,
            self._budget,
            stop,
            self._next_seed,
            clock,
            quality=self._quality,
        )
        self._seeds_used = _points(self._record)
        self.modes: dict[str, Recommendation] = {}
        """Recommendations by aspect, where the objective has several."""
        self._races = True

    def run(self) -> Recommendation:
        """Search, race and recommend. Raises ``Interrupted`` and ``EnvironmentFault``."""
        try:
            try:
                self._search()
            finally:
                self._seat.leave()
                self._engines.close()
            return self._end()
        except Interrupted as error:
            self._session.interrupted()
            raise Interrupted(
                "stopped; everything measured so far is kept. Give the same command again to go on."
            ) from error
        finally:
            self._session.spend(self._clock() - self._started)

    def explore(self, rival: LaunchConfig) -> LaunchConfig | None:
        """Search without a race: what promises most of all that did better than ``rival``, a whole launch config.

        All of the budget is the search's. Raises ``Interrupted`` and ``EnvironmentFault``.
        """
        self._races = False
        try:
            self._search()
        finally:
            self._seat.leave()
            self._engines.close()
        effective = self._plan.space.effective
        own = [o for o in self._searcher.history() if effective(o.suggestion.target) == effective(rival)]
        for observation in self._searcher.finalists(1):
            if effective(observation.suggestion.target) != effective(rival):
                return observation.suggestion.target if self._ahead(observation, own) else None
        return None

    def _ahead(self, observation: Observation, others: list[Observation]) -> bool:
        """Whether it did better than each of the others that has a number."""
        sign = 1 if self._searcher.direction == "maximize" else -1
        value = sign * (observation.outcome.value or 0.0)
        return all(o.outcome.value is None or value > sign * o.outcome.value for o in others)

    def _search(self) -> None:
        while self._room_for_a_trial():
            self._stop.check()
            suggestion = self._searcher.ask(self._seat.movable)
            if suggestion is None:
                self._progress.note("Nothing promising is left to try.")
                return
            self._run_trial(suggestion)

    def _room_for_a_trial(self) -> bool:
        """Whether another trial and the race after it fit; says so where not even one does."""
        budget = self._budget
        racing = given(self._plan)
        races = max(1, len(self._plan.objective.aspects)) if self._races else 0
        budget.race_visits = races * race_visits(finalists_for(budget, racing), racing)
        room = budget.allows_trial()
        timed = self._races and budget.trials is None
        if timed and budget.seconds is not None and not room and budget.trials_done <= racing:
            needed_s = budget.spent_s + budget.boot_s + budget.point_s + budget.reserve_s
            race = f"each of {budget.race_visits} visits of the race takes about {budget.visit_s:.0f} s"
            self._progress.note(
                f"The budget leaves no room for a trial and its race: engines boot in {budget.boot_s:.0f} s here, and "
                f"{race}. Give --budget {math.ceil(needed_s / 60)}m or more; what was measured counts."
            )
        return room

    def _run_trial(self, suggestion: Suggestion) -> None:
        self._progress.now(f"trial {suggestion.trial}: {self._name(suggestion)}")
        if self._killed_before(suggestion) >= MOST_KILLS:
            outcome, boot_s = Outcome("not_measured", reason="the tuner was killed twice during this trial"), None
        else:
            outcome, boot_s = self._trials.run(suggestion)
        self._searcher.tell(suggestion, outcome)
        if outcome.status != "not_measured" or suggestion.attempt > 1:
            self._budget.count_trial()
        self._progress.trial(self._line(suggestion, outcome, boot_s))
        self._report_budget()

    def _end(self) -> Recommendation:
        """One race, or one for each of the objective's aspects; these share the visits of equal racers."""
        aspects = self._plan.objective.aspects
        self.modes = {aspect: self._race(aspect) for aspect in aspects}
        return self.modes[aspects[len(aspects) // 2]] if aspects else self._race()

    def _race(self, aspect: str = "") -> Recommendation:
        base = self._searcher.baseline()
        objective = self._plan.objective
        out = out_of_the_race(base, objective, aspect)
        baseline = None if out else entrant(self._plan, self._plan.space.fixed)
        finalists = [entrant(self._plan, o.suggestion.target) for o in self._better_than(base, aspect)]
        finalists = [*self._incumbents(), *self._exportable(finalists)]
        searched = self._searched(base, aspect, out)
        self._progress.note(f"{aspect.capitalize()}: " * bool(aspect) + _race_note(baseline, finalists, searched))
        finals = Finals(
            self._engines,
            self._trials,
            self._judge,
            self._budget,
            self._progress,
            objective,
            self._report_budget,
            lambda: Strangers(self._plan.host.cpu.usable_cores),
            aspect,
        )
        noise = self._noise(aspect)
        result = finals.run(baseline, finalists, noise, self._boots())
        if baseline and finalists and objective.slos and baseline.config.key() in result.dropped:
            out, baseline = f"vLLM's defaults are out: {result.dropped[baseline.config.key()]}", None
            searched = replace(searched, default=None, out=out, unmeasured="")
            self._progress.note(f"{out}. The finalists race each other.")
            result = finals.run(None, finalists, noise, self._boots())
        ending = self._closer(finals, baseline, noise, ablate=not aspect).close(result, baseline, finalists)
        boot_s = _boot_seconds(self._boots(), ending.race.winner)
        found = recommend(self._plan, ending, baseline, searched, boot_s, aspect=aspect)
        return with_quality(found, self._plan, ending, baseline, self._quality, self._searcher.history())

    def _searched(self, base: Observation | None, aspect: str, out: str) -> Searched:
        history = self._searcher.history()
        with_a_figure = [o for o in history if o.outcome.value is not None]
        return Searched(
            default=of_aspect(base, aspect).outcome if base and not out else None,
            out=out,
            unmeasured=unmeasured(base, self._searcher.no_baseline_because()),
            missed=nearest_miss(self._plan, history),
            alone=all(o.suggestion.origin == "baseline" for o in with_a_figure),
        )

    def _exportable(self, entrants: list[Entrant]) -> list[Entrant]:
        """The entrants less those whose answers are not good enough, or not known to be."""
        judged = [(e, self._quality.refuses(e.config)) for e in entrants]
        for e, why in judged:
            if why is not None:
                self._progress.note(f"{e.name} does not race: {why}")
        return [e for e, why in judged if why is None]

    def _ablated(self, ablation: Ablation) -> Ablation:
        """An ablation whose smaller configuration is taken only where its quality is known."""
        refused = ablation.slimmer is not None and self._quality.refuses(ablation.slimmer.config) is not None
        return replace(ablation, slimmer=None, race=None) if refused else ablation

    def _closer(self, finals: Finals, baseline: Entrant | None, noise: NoiseFloor, *, ablate: bool) -> Closer:
        """``ablate`` is not for one of several aspects: the races of the others need that time."""
        plan, store = self._plan, self._session.store
        soaker = Soaker(plan, store, self._engines, self._stop)
        ablator = Ablator(
            finals,
            self._budget,
            plan.space.fixed,
            [p.name for p in plan.space.parameters],
            noise,
            self._boots,
            lambda config: entrant(plan, config),
            keep_s=self._budget.visit_s + soaker.seconds,
        )
        return Closer(
            self._budget,
            soaker,
            lambda winner, others: (
                self._ablated(ablator.run(winner, baseline, others))
                if ablate and plan.settings.ablation
                else NOTHING_ABLATED
            ),
            self._boots,
            self._progress.note,
            self._quality.refuses,
        )

    def _boots(self) -> list[BootRow]:
        record = self._session.store.run(self._plan.study)
        return record.boots if record else []

    def _incumbents(self) -> list[Entrant]:
        """What runs in production, less what cannot run here."""
        failed = [o.suggestion.target for o in self._searcher.history() if o.outcome.status == "infeasible"]
        return [Entrant(i.name, i.config, 0, "incumbent") for i in self._plan.incumbents if i.config not in failed]

    def _better_than(self, base: Observation | None, aspect: str) -> list[Observation]:
        """Finalists that could be better than the default, given what the search saw of both."""
        objective = self._plan.objective
        if aspect:
            found = best_in(self._searcher.history(), aspect)
        else:
            found = self._searcher.finalists(finalists_for(self._budget, given(self._plan)), objective.pick_margin)
        if base is None or out_of_the_race(base, objective, aspect):
            return found
        return within_reach(found, of_aspect(base, aspect), objective)

    def _noise(self, aspect: str) -> NoiseFloor:
        """The noise floor from the baseline's repeated blocks."""
        blocks = [[stored_figure(p, aspect) for p in b.points] for b in self._boots() if b.role == "baseline"]
        known = [[value for value in block if value is not None] for block in blocks]
        assumed = self._plan.objective.noise(window_s(self._plan, race=True))
        return noise_floor([values for values in known if values], assumed)

    def _killed_before(self, suggestion: Suggestion) -> int:
        boots = self._record.boots if self._record else []
        return sum(b.trial == suggestion.trial and b.status in ("booting", "ready", "interrupted") for b in boots)

    def _next_seed(self) -> int:
        self._seeds_used += 1
        return self._plan.settings.seed * 100_000 + self._seeds_used

    def _line(self, suggestion: Suggestion, outcome: Outcome, boot_s: float | None) -> TrialLine:
        base = self._searcher.baseline()
        reference = base.outcome.value if base else None
        baseline = suggestion.origin == "baseline"
        objective = self._plan.objective
        ratio = outcome.value / reference if outcome.value and reference and not baseline else None
        missed = outcome.value is not None and max(excesses(outcome, objective).values(), default=-1.0) > 0
        return TrialLine(
            label=suggestion.origin if suggestion.origin in GIVEN else f"trial {suggestion.trial}",
            config=self._name(suggestion),
            status="misses the SLO" if missed else outcome.status.replace("_", " "),
            value=None if missed else outcome.value,
            unit=objective.unit,
            ratio=ratio,
            better=ratio is not None and (ratio > 1) == (objective.direction == "maximize"),
            boot_s=boot_s,
            reason=outcome.reason,
            limit=self._trials.limit,
        )

    def _name(self, suggestion: Suggestion) -> str:
        named = (i.name for i in self._plan.incumbents if i.config == suggestion.target)
        return next(named, entrant(self._plan, suggestion.target).name)

    def _report_budget(self) -> None:
        budget = self._budget
        self._session.spend(self._clock() - self._started)
        if budget.seconds is not None:
            self._progress.budget(budget.spent_s / budget.seconds, budget.seconds - budget.spent_s)
        elif budget.trials:
            self._progress.budget(budget.trials_done / budget.trials, None)


def memory_gate(plan: Plan, stop: StopFlag) -> MemoryGate:
    """What must hold before each boot; what is free now is the baseline."""
    if plan.device.gpu is None:
        return ram_gate(plan.study, stop)
    return gpu_gate(open_nvml(), plan.device.gpu, plan.study, stop)


def _searcher(
    plan: Plan, domain: Domain, guard: QualityGuard, feasible: Feasible, shape: ModelShape | None
) -> StudySearcher:
    study = open_study(plan.study, plan.storage, plan.objective.direction)
    return StudySearcher(
        study,
        domain,
        _sampler(plan, domain, shape),
        seed=plan.settings.seed,
        seeds=first_configs(plan, domain),
        effective=plan.space.effective,
        slo_names=[*guard.constraints, *(str(slo) for slo in plan.objective.constraints)],
        feasible=guard.guarding(feasible),
    )


def _sampler(plan: Plan, domain: Domain, shape: ModelShape | None) -> Sampler:
    physics = DevicePhysics(plan, shape)
    prior = plan.objective.prior(physics) if physics.known else None
    return make_sampler(plan.settings.sampler, domain, plan.objective.direction, prior)


def _points(record: RunRow | None) -> int:
    return sum(len(boot.points) for boot in record.boots) if record else 0


def _boot_seconds(boots: list[BootRow], key: str | None) -> float | None:
    times = [b.boot_s for b in boots if b.config_key == key and b.role == "final" and b.boot_s is not None]
    return max(times, default=None)


def _race_note(baseline: Entrant | None, finalists: list[Entrant], searched: Searched) -> str:
    out = searched.out
    if not finalists:
        unmeasured = f"vLLM's defaults were not measured: {searched.unmeasured}" if searched.unmeasured else ""
        return f"{out or unmeasured or nothing_better(searched.alone)}. There is nothing to race."
    incumbents = [f.name for f in finalists if f.role == "incumbent"]
    against = "vLLM's defaults" if baseline else f"each other ({out})"
    beside = f" and what runs in production ({', '.join(incumbents)})" if incumbents else ""
    ours = len(finalists) - len(incumbents)
    finals = "1 finalist" if ours == 1 else f"{ours or 'no'} finalists"
    return f"Final race on fresh prompts and engines: {finals} against {against}{beside}."
