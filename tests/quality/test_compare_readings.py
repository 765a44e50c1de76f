"""Distances between readings, on distributions whose true distance is known."""

import numpy as np
import pytest

from autotune.quality.compare import Comparison, compare, divergence
from autotune.quality.levels import LEVELS, judge
from autotune.quality.reading import TOP, Prompts, Reading, Scores

VOCAB = 400
LENGTH, COUNT = 100, 12


def distributions(seed: int, noise: float = 0.0, noise_seed: int = 1) -> np.ndarray:
    """Probabilities, shape (positions, VOCAB): peaked like a language model's, bent by ``noise``."""
    logits = 4 * np.random.default_rng(seed).standard_normal((LENGTH * COUNT, VOCAB))
    logits += noise * np.random.default_rng(noise_seed).standard_normal(logits.shape)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def scores(p: np.ndarray, tokens: np.ndarray) -> Scores:
    top = np.argsort(-p, axis=1)[:, :TOP].astype(np.int32)
    rows = np.arange(len(p))
    return Scores(
        tokens=tokens.astype(np.int32),
        own=np.log(p[rows, tokens]).astype(np.float32),
        top=top,
        logprobs=np.log(np.take_along_axis(p, top, axis=1)).astype(np.float32),
        group=(rows // LENGTH).astype(np.int32),
    )


def reading(p: np.ndarray, text: np.ndarray) -> Reading:
    return Reading(Prompts(((1, 2),), ((3,),)), scores(p, text), scores(p[:96], p[:96].argmax(axis=1)), 1.0)


def text_of(p: np.ndarray) -> np.ndarray:
    """A text that the model itself would write."""
    draws = np.random.default_rng(5).random(len(p))
    return (p.cumsum(axis=1) > draws[:, None]).argmax(axis=1)


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    return distributions(0)


def against(truth: np.ndarray, noise: float, noise_seed: int = 1) -> Comparison:
    text = text_of(truth)
    return compare(reading(truth, text), reading(distributions(0, noise, noise_seed), text))


def test_a_reading_against_itself_is_exactly_zero(truth: np.ndarray) -> None:
    found = against(truth, 0.0)
    assert (found.kl.value, found.kl.high, found.decoding_kl.high) == (0, 0, 0)
    assert (found.perplexity_ratio.value, found.top1.value, found.greedy) == (1, 1, 1)


@pytest.mark.parametrize("noise", [0.05, 0.2, 0.5])
def test_the_divergence_is_that_of_the_whole_vocabulary_and_never_above_it(truth: np.ndarray, noise: float) -> None:
    other = distributions(0, noise)
    whole = (truth * np.log(truth / other)).sum(axis=1)
    found = divergence(scores(truth, text_of(truth)), scores(other, text_of(truth)))
    assert (found <= whole + 1e-6).all()
    assert found.mean() == pytest.approx(whole.mean(), rel=0.35)


def test_noise_is_several_nats_away_although_the_lists_share_no_token(truth: np.ndarray) -> None:
    other = distributions(99)
    text = text_of(truth)
    found = compare(reading(truth, text), reading(other, text))
    assert found.kl.low > 1.0 and found.top1.high < 0.1 and found.perplexity_ratio.low > 10
    assert judge(found, LEVELS["any"]).verdict == "over"


def test_intervals_hold_the_true_mean_about_as_often_as_they_say(truth: np.ndarray) -> None:
    values = [against(truth, 0.2, seed).kl for seed in range(1, 25)]
    mean = np.mean([v.value for v in values])
    assert sum(v.low <= mean <= v.high for v in values) >= 20


def test_the_mean_while_decoding_is_that_of_reading_although_answers_part(truth: np.ndarray) -> None:
    found = [against(truth, 0.3, seed) for seed in range(1, 9)]
    assert all(f.greedy < 1 for f in found)
    decoding = np.mean([f.decoding_kl.value for f in found])
    assert decoding == pytest.approx(np.mean([f.kl.value for f in found]), rel=0.5)


def test_a_reading_survives_its_bytes(truth: np.ndarray) -> None:
    first = reading(truth, text_of(truth))
    again = Reading.from_bytes(first.to_bytes())
    assert again.prompts == first.prompts and compare(first, again).kl.high == 0
    assert Comparison.from_json(compare(first, again).to_json()) == compare(first, again)


def test_other_prompts_do_not_compare(truth: np.ndarray) -> None:
    first = reading(truth, text_of(truth))
    other = Reading(Prompts(((9,),), ()), first.passages, first.openings, 1.0)
    with pytest.raises(ValueError, match="same prompts"):
        compare(first, other)
