import math
import sqlite3

import optuna
import pytest
from optuna.trial import TrialState

from autotune.errors import StoreError
from autotune.search.domain import Domain
from autotune.search.samplers import RandomSampler, TpeSampler
from autotune.search.study import StudySearcher, open_study
from autotune.search.types import Feasibility, Outcome
from autotune.space.config import LaunchConfig
from autotune.space.parameters import Parameter, SearchSpace

SPACE = SearchSpace(
    "test",
    (
        Parameter("max-num-seqs", (1, 4, 16, 64, 256), "live", ordered=True),
        Parameter("enforce-eager", (None, True)),
        Parameter("kv-cache-dtype", (None, "fp8", "fp8_e5m2")),
        Parameter("cudagraph", ("none", "full"), requires={"enforce-eager": (None, False)}),
    ),
    fixed=LaunchConfig.of({"max-model-len": 512}),
)
DEFAULTS = {"max-num-seqs": 256, "enforce-eager": False}


def searcher(storage=None, sampler="random", seed=3, **options):
    domain = Domain(SPACE, DEFAULTS)
    study = open_study("s", storage, "maximize")
    make = RandomSampler(domain) if sampler == "random" else TpeSampler(domain, "maximize")
    return StudySearcher(study, domain, make, seed=seed, **options)


def measured(suggestion, **extra):
    seqs = suggestion.config.get("max-num-seqs") or 256
    return Outcome("measured", value=100.0 * math.sqrt(seqs), value_se=1.0, **extra)


def run(search, trials, outcome=measured):
    asked = []
    while len(asked) < trials and (suggestion := search.ask()) is not None:
        search.tell(suggestion, outcome(suggestion))
        asked.append(suggestion)
    return asked


def crash(suggestion):
    return Outcome("infeasible", margin=0.2, reason="kv-cache-too-small")


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


def test_baseline_is_first_then_seeds_with_all_parameters_recorded():
    seed = LaunchConfig.of({"max-num-seqs": 16})
    search = searcher(seeds=[("seed", seed)])
    first, second, third = run(search, 3)
    assert first.origin == "baseline" and first.config == SPACE.fixed
    assert second.origin == "seed" and second.config == SPACE.fixed.merged(seed)
    assert third.origin == "sampler"
    assert all(set(t.params) == {p.name for p in SPACE.parameters} for t in search._study.trials)


def test_no_effective_configuration_is_tried_twice_and_the_space_runs_out():
    asked = run(searcher(), 200)
    keys = [s.config.key() for s in asked]
    assert len(keys) == len(set(keys))
    # 5 sizes (256 is the default) x (graphs: 3, eager: 1) x 3 dtypes
    assert len(keys) == 5 * 4 * 3


def test_explicit_default_and_inactive_parameters_have_one_spelling():
    domain = Domain(SPACE, DEFAULTS)
    assert domain.config({"max-num-seqs": 256, "enforce-eager": False}) == SPACE.fixed
    eager = domain.canonical({"enforce-eager": True, "cudagraph": "full"})
    assert eager["cudagraph"] is None
    assert domain.canonical({"cudagraph": "full"})["cudagraph"] == "full"


def test_effective_function_merges_configurations():
    search = searcher(effective=lambda c: c.get("max-num-seqs"))
    assert len(run(search, 200)) == 5


def test_crash_is_complete_with_the_worst_value_and_a_constraint():
    search = searcher()
    good = run(search, 3)
    (bad,) = run(search, 1, crash)
    trials = search._study.trials
    worst = min(measured(s).value for s in good)
    assert trials[bad.trial].state is TrialState.COMPLETE
    assert trials[bad.trial].value == worst
    assert trials[bad.trial].constraints == {"starts": pytest.approx(0.2)}
    assert trials[bad.trial].user_attrs["constraints"] == {"starts": pytest.approx(0.2)}
    assert {frozenset(t.constraints) for t in trials} == {frozenset({"starts"})}
    assert search._study.best_trial.number != bad.trial


def test_crash_before_any_value_is_finite_and_infeasible():
    search = searcher(slo_names=("ttft_p95",))
    (bad,) = run(search, 1, crash)
    trial = search._study.trials[bad.trial]
    assert trial.state is TrialState.COMPLETE and math.isfinite(trial.value) and trial.value != 0.0
    assert set(trial.constraints) == {"starts", "ttft_p95"} and trial.constraints["starts"] > 0


def test_environment_fault_is_asked_again_and_teaches_nothing():
    search = searcher()
    run(search, 1)
    first = search.ask()
    search.tell(first, Outcome("not_measured", reason="port taken"))
    again = search.ask()
    assert (again.trial, again.config, again.attempt) == (first.trial, first.config, 2)
    search.tell(again, Outcome("not_measured", reason="port taken"))
    other = search.ask()
    assert other.config != first.config
    assert len(search.history()) == 1


def test_resume_continues_as_if_never_stopped(url, tmp_path):
    straight = run(searcher(), 8)
    run(searcher(url), 5)
    rest = run(searcher(url), 3)
    assert [s.config for s in rest] == [s.config for s in straight[5:]]


def test_a_baseline_that_could_not_be_measured_is_asked_first_by_the_next_run_only(url):
    search = searcher(url)
    for _ in range(2):
        search.tell(search.ask(), Outcome("not_measured", reason="port taken"))
    assert search.no_baseline_because() == "port taken"
    assert search.ask().origin != "baseline"
    run(search, 1)
    resumed = searcher(url)
    again = resumed.ask()
    assert (again.origin, again.attempt, again.trial) == ("baseline", 1, 2)
    resumed.tell(again, measured(again))
    assert resumed.baseline().outcome.value is not None
    assert searcher(url).ask().origin != "baseline"


def test_a_database_of_another_optuna_is_no_traceback(url, tmp_path):
    searcher(url)
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("update alembic_version set version_num = 'v9'")
    with pytest.raises(StoreError, match="the study's database cannot be used: The runtime optuna version"):
        searcher(url)


def test_a_trial_that_was_running_at_a_kill_is_asked_again(url):
    lost = searcher(url).ask()
    resumed = searcher(url)
    assert resumed.ask() == lost
    resumed.tell(resumed.ask(), measured(lost))
    assert len(resumed.history()) == 1


def test_a_kill_between_the_outcome_and_the_tell_loses_nothing(url):
    first = searcher(url)
    suggestion = first.ask()
    open_trial = optuna.trial.Trial(first._study, first._study.trials[0]._trial_id)
    first._study.tell = None  # the process dies where Optuna would be told
    with pytest.raises(TypeError):
        first._finish(open_trial, measured(suggestion))
    resumed = searcher(url)
    assert resumed.ask().config != suggestion.config
    assert resumed.history()[0].outcome.value == measured(suggestion).value


def test_a_kill_between_enqueue_and_ask_loses_nothing(url):
    first = searcher(url)
    first._start = lambda: None
    assert first.ask() is None
    assert searcher(url).ask().origin == "baseline"


def test_predicted_impossible_configurations_cost_nothing():
    search = searcher(feasible=lambda c: Feasibility(c.get("enforce-eager") is None, "no memory"))
    asked = run(search, 200)
    assert all(s.config.get("enforce-eager") is None for s in asked)
    assert len(asked) == 5 * 3 * 3


def test_finalists_meet_the_slo_with_a_margin_and_are_ordered_by_their_lower_end():
    search = searcher(slo_names=("ttft",))
    run(search, 20, lambda s: measured(s, violations={"ttft": -0.05 if s.trial % 2 else 0.2}))
    finalists = search.finalists(3)
    assert all(o.suggestion.trial % 2 for o in finalists)
    assert [o.outcome.value for o in finalists] == sorted((o.outcome.value for o in finalists), reverse=True)
    assert search.finalists(3, slo_margin=0.1) == []


def test_wrong_slo_keys_and_impossible_outcomes_are_refused():
    search = searcher(slo_names=("ttft",))
    suggestion = search.ask()
    with pytest.raises(ValueError, match="ttft"):
        search.tell(suggestion, measured(suggestion))
    with pytest.raises(ValueError, match="finite"):
        Outcome("measured", value=float("nan"))
    with pytest.raises(ValueError, match="measured"):
        Outcome("infeasible", value=1.0)


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_same_seed_same_trials_other_seed_other_trials(kind):
    first, second, other = (run(searcher(sampler=kind, seed=s), 14) for s in (1, 1, 2))
    assert [s.config for s in first] == [s.config for s in second]
    assert [s.config for s in first] != [s.config for s in other]


def test_tpe_learns_to_keep_away_from_crashes():
    def outcome(suggestion):
        return crash(suggestion) if suggestion.config.get("kv-cache-dtype") else measured(suggestion)

    def crashes(kind):
        runs = [run(searcher(sampler=kind, seed=s), 22, outcome) for s in range(6)]
        return sum(s.config.get("kv-cache-dtype") is not None for r in runs for s in r)

    assert crashes("tpe") < 0.8 * crashes("random")


def test_seed_values_outside_the_space_are_taken_in_order():
    domain = Domain(SPACE, DEFAULTS, extra=[LaunchConfig.of({"max-num-seqs": 48})])
    assert domain.axes[0].values == (1, 4, 16, 48, 64, None)
