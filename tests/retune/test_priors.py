"""Earlier trials are tried again only where they still mean what they meant."""

from dataclasses import replace

from autotune.engine.flags import FlagTable
from autotune.engine.releases import load_releases
from autotune.retune.incumbent import Earlier
from autotune.retune.priors import MOST_SEEDS, find_priors
from autotune.space.config import FlagValue, LaunchConfig

RELEASES = load_releases()
TABLE = RELEASES.table(RELEASES.nearest("0.32"))
NAMES = ["max-num-seqs", "max-num-batched-tokens", "enable-prefix-caching", "stream-interval"]


def trial(value: float, **flags: FlagValue) -> Earlier:
    fixed: dict[str, FlagValue] = {"max-model-len": 4096}
    return Earlier(LaunchConfig.of({**fixed, **{k.replace("_", "-"): v for k, v in flags.items()}}), value)


def with_default(table: FlagTable, name: str, default: FlagValue) -> FlagTable:
    flags = tuple(replace(f, default=default, default_known=True) if f.name == name else f for f in table.flags)
    return replace(table, flags=flags)


EARLIER = [trial(9, max_num_seqs=64), trial(8, max_num_seqs=32, stream_interval=4), trial(7)]


def test_the_same_meaning_gives_seeds_in_order_without_fixed_flags_default_and_incumbent() -> None:
    found = find_priors(EARLIER, NAMES, LaunchConfig.of({"max-num-seqs": 64}), TABLE, TABLE)
    assert found.seeds == (LaunchConfig.of({"max-num-seqs": 32, "stream-interval": 4}),) and found.notes == ()


def test_a_moved_default_leaves_out_every_trial_that_relied_on_it() -> None:
    new = with_default(TABLE, "stream-interval", 10)
    found = find_priors(EARLIER, NAMES, LaunchConfig(), TABLE, new)
    assert found.seeds == (LaunchConfig.of({"max-num-seqs": 32, "stream-interval": 4}),)
    assert found.notes[0].startswith("2 earlier trials") and "is 10" in found.notes[1]


def test_a_flag_that_is_gone_leaves_its_trials_out() -> None:
    new = replace(TABLE, flags=tuple(f for f in TABLE.flags if f.name != "stream-interval"))
    found = find_priors(EARLIER, NAMES, LaunchConfig(), TABLE, new)
    assert found.seeds == (LaunchConfig.of({"max-num-seqs": 64}),)
    assert "stream-interval" in found.notes[1]


def test_no_more_seeds_than_a_short_search_can_try() -> None:
    many = [trial(100 - n, max_num_seqs=n + 1) for n in range(20)]
    assert len(find_priors(many, NAMES, LaunchConfig(), TABLE, TABLE).seeds) == MOST_SEEDS
