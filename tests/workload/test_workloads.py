"""Presets, workload files, scaling, lengths and prompts."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.workload.lengths import Lengths, stratified
from autotune.workload.load import load_workload, preset_names
from autotune.workload.prompts import PromptStream
from autotune.workload.types import RequestShape, SharedPrefix, Workload, scaled

VOCAB = 4096


def stream(workload: Workload, point: str = "p", **options: int) -> PromptStream:
    return PromptStream(workload, seed=1, point_id=point, vocab_size=VOCAB, **options)


def take(prompts: PromptStream, n: int) -> list[np.ndarray]:
    return [prompts.next().prompt for _ in range(n)]


ONE_SHAPE = """shapes:
  - {{name: a, weight: {1}, output: {{distribution: fixed, tokens: 1}},
     input: {{distribution: fixed, tokens: {0}}}}}
"""


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_makes_requests_within_its_limits(name: str) -> None:
    workload, _ = scaled(load_workload(name), 4096)
    prompts = stream(workload)
    for _ in range(70):
        request = prompts.next()
        assert len(request.prompt) == request.prompt_tokens
        assert request.prompt_tokens + request.output_tokens <= 4096
        assert request.prompt.min() > 0 and request.prompt.max() < VOCAB
        assert request.output_tokens >= 1


def test_presets_are_described_and_named() -> None:
    expected = {"batch-512-256", "chat", "summarize-long", "mixed-70-30", "code", "rag", "reasoning"}
    assert expected | {"no-reasoning", "customer-service", "demo"} <= set(preset_names())
    assert all(load_workload(name).description for name in preset_names())


def test_an_unknown_name_lists_the_presets() -> None:
    with pytest.raises(UsageError, match=r"no workload 'chatt'.*batch-512-256, chat"):
        load_workload("chatt")


@pytest.mark.parametrize(
    "text, problem",
    [
        ("shapes:\n  - name: a\n    input: {distribution: fixed, tokens: 0}\n", "w.yaml:3: "),
        ("shapes: []\n", "w.yaml:1: shapes"),
        ("colour: red\n", "w.yaml:1: "),
        ("a: [\n", "is not YAML"),
        (
            "shapes:\n  - name: a\n    input: {distribution: uniform, min: 9, max: 2}\n"
            "    output: {distribution: fixed, tokens: 1}\n",
            "min 9 is above max 2",
        ),
        (ONE_SHAPE.format("-5", "1.0"), "w.yaml:3: shapes.0.input.fixed.tokens: Input should be greater"),
        (ONE_SHAPE.format("1000000000000", "1.0"), "less than or equal to 10000000"),
        (ONE_SHAPE.format("5", ".nan"), "w.yaml:2: shapes.0.weight"),
        (ONE_SHAPE.format("5", ".inf"), "shapes.0.weight: Input should be a finite number"),
        (ONE_SHAPE.format("5", "1.0") + "sampling: {temperature: .nan}\n", "w.yaml:4: sampling.temperature"),
        (ONE_SHAPE.format("5", "1.0") + "arrival: {rate_per_s: .inf}\n", "arrival.rate_per_s"),
        (ONE_SHAPE.format("5", "1.0") + "arrival: {rate_per_s: -1}\n", "arrival.rate_per_s"),
        ("- a list\n", "w.yaml:1: the file"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        load_workload(str(path))
    assert problem in str(error.value)


def test_a_workload_that_fits_is_not_scaled() -> None:
    workload = load_workload("demo")
    assert scaled(workload, 4096) == (workload, None)


def test_scaling_says_by_how_much_and_fits() -> None:
    smaller, message = scaled(load_workload("summarize-long"), 4096)
    assert smaller.max_len_needed <= 4096
    assert message is not None and "needs 125000" in message and "4096" in message


@given(st.floats(10, 5000), st.floats(0.1, 1.5), st.integers(1, 100), st.integers(100, 9000))
def test_lognormal_lengths_keep_their_limits(median: float, sigma: float, low: int, high: int) -> None:
    lengths = Lengths.lognormal(median, sigma, low, high).at(np.linspace(0.001, 0.999, 50))
    assert lengths.min() >= low and lengths.max() <= high
    assert (np.diff(lengths) >= 0).all()


def test_stratified_draws_take_one_from_every_slice() -> None:
    drawn = stratified(np.random.default_rng(0), 64)
    assert sorted((drawn * 64).astype(int)) == list(range(64))


def test_the_same_point_gives_the_same_prompts_and_another_point_none_of_them() -> None:
    workload = load_workload("demo")
    first, again, other = (take(stream(workload, p), 100) for p in ("p", "p", "q"))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert not {tuple(a[:16]) for a in first} & {tuple(a[:16]) for a in other}


def test_no_two_prompts_begin_alike_even_across_clients() -> None:
    workload = load_workload("demo")
    prompts = [p for client in range(3) for p in take(stream(workload, client=client, clients=3), 200)]
    assert len({tuple(p[:4]) for p in prompts}) == 600


def test_shared_prefixes_are_shared_inside_a_point_only() -> None:
    shape = RequestShape("q", Lengths.fixed(100), Lengths.fixed(5), prefix=SharedPrefix(64, 4))
    workload = Workload("w", (shape,))
    starts = {tuple(p[:64]) for p in take(stream(workload), 200)}
    assert len(starts) == 4
    assert not starts & {tuple(p[:64]) for p in take(stream(workload, "other"), 200)}
    assert workload.intended_hit_rate == pytest.approx(0.64)
    assert len({tuple(p[64:80]) for p in take(stream(workload), 200)}) == 200


def test_a_request_in_the_middle_of_its_life_keeps_its_total() -> None:
    (request,) = stream(load_workload("batch-512-256")).first_wave([0.5])
    assert (request.prompt_tokens, request.output_tokens, request.partial) == (640, 128, True)


def test_the_first_wave_holds_more_long_answers_as_they_run_for_longer() -> None:
    workload = load_workload("chat")
    prompts = stream(workload)
    later = np.array([prompts.next().output_tokens for _ in range(4000)])
    first = np.array([request.output_tokens for request in stream(workload).first_wave([0.0] * 1000)])
    assert first.mean() == pytest.approx((later**2).mean() / later.mean(), rel=0.05)


def test_avoided_ids_never_appear() -> None:
    avoid = frozenset(range(500, 3000))
    prompts = PromptStream(load_workload("demo"), seed=1, point_id="p", vocab_size=VOCAB, avoid=avoid)
    ids = np.concatenate([prompts.next().prompt[4:] for _ in range(50)])
    assert not avoid & set(ids.tolist())


def test_text_prompts_have_about_the_asked_length() -> None:
    prompts = PromptStream(load_workload("batch-512-256"), seed=1, point_id="p", vocab_size=None)
    text = prompts.next().prompt
    assert isinstance(text, str) and len(text.split()) == 513
