"""Traces and the user's own requests."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import UsageError
from autotune.workload.load import load_workload
from autotune.workload.prompts import PromptStream
from autotune.workload.types import TraceRequest, Workload, scaled

TRACES = Path(__file__).parents[2].parent / "shared/data/traces"
needs_traces = pytest.mark.skipif(not TRACES.exists(), reason="the public traces are not beside this checkout")


@needs_traces
def test_the_azure_traces_are_read_whole() -> None:
    conversation = load_workload(str(TRACES / "AzureLLMInferenceTrace_conv.csv.gz"))
    assert len(conversation.trace) == 19366
    assert conversation.mean_input_tokens == pytest.approx(1155, abs=1)
    assert conversation.arrival is not None and conversation.arrival.rate_per_s == pytest.approx(5.53, abs=0.02)
    code = load_workload(str(TRACES / "AzureLLMInferenceTrace_code.csv.gz"))
    assert (len(code.trace), round(code.mean_output_tokens)) == (8819, 28)


@needs_traces
def test_the_mooncake_trace_shares_prefixes() -> None:
    workload, message = scaled(load_workload(str(TRACES / "mooncake_conversation_first2000.jsonl.gz")), 4096)
    assert message is not None and len(workload.trace) == 2000
    prompts = PromptStream(workload, seed=1, point_id="p", vocab_size=4096)
    made = [prompts.next() for _ in range(50)]
    assert all(len(r.prompt) == r.prompt_tokens for r in made)
    assert len({tuple(r.prompt[: workload.block_tokens]) for r in made}) == 1
    assert 0.1 < (workload.intended_hit_rate or 0) < 0.6


def test_equal_leading_blocks_share_and_rounds_do_not() -> None:
    trace = (TraceRequest(40, 4, (7, 8)), TraceRequest(40, 4, (7, 9)))
    workload = Workload("t", trace=trace, block_tokens=20)
    prompts = PromptStream(workload, seed=1, point_id="p", vocab_size=4096)
    first, second, again = (prompts.next().prompt for _ in range(3))
    assert (first[:20] == second[:20]).all() and (first[20:36] != second[20:36]).any()
    assert (again[:20] != first[:20]).any()
    assert workload.intended_hit_rate == pytest.approx(20 / 80)


def test_clients_share_a_trace_without_overlap() -> None:
    workload = Workload("t", trace=tuple(TraceRequest(100 + i, 4) for i in range(10)))
    lengths = []
    for client in range(2):
        prompts = PromptStream(workload, seed=1, point_id="p", vocab_size=4096, client=client, clients=2)
        lengths += [prompts.next().prompt_tokens for _ in range(5)]
    assert sorted(lengths) == list(range(100, 110))


def test_own_requests_keep_their_text_behind_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.write('{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}\n')
        file.write('{"body": {"messages": [{"role": "user", "content": "Ho"}]}}\n')
    workload = load_workload(str(path))
    assert (workload.kind, workload.ignore_eos, workload.intended_hit_rate) == ("chat", False, None)
    texts = []
    for point in ("p", "q"):
        prompts = PromptStream(workload, seed=1, point_id=point, vocab_size=None)
        texts += [request.prompt[0]["content"] for request in prompts.first_wave([0.5] * 3)]
    assert [text[9:] for text in texts] == ["Hi", "Ho", "Hi"] * 2
    marks = [text[:8] for text in texts]
    assert marks[0] == marks[1] and len(set(marks)) == 4


@pytest.mark.parametrize(
    "name, text, problem",
    [
        ("a.csv", "time,in,out\n", "a.csv:1: a trace in CSV has the columns TIMESTAMP"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,x,1\n", "a.csv:2: invalid literal"),
        ("a.jsonl", '{"prompt": "x"}\nnope\n', "a.jsonl:2: not JSON"),
        ("a.jsonl", '{"input_length": 4}\n', "a.jsonl:1: KeyError('output_length')"),
        ("a.jsonl", '{"text": 4}\n', 'a request needs "prompt" or "messages"'),
        ("a.jsonl", '{"prompt": "x", "max_tokens": -1}\n', "max_tokens is -1"),
        ("a.jsonl", '{"prompt": "x"}\n{"messages": [{"role": "user"}]}\n', "use one kind per file"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,-5,1\n", "a.csv:2: a length of -5"),
        ("a.jsonl", '{"input_length": -4, "output_length": 1}\n', "a.jsonl:1: ValueError('a length of -4 tokens')"),
        ("a.jsonl", '{"input_length": Infinity, "output_length": 1}\n', "a.jsonl:1: OverflowError"),
        ("a.jsonl", '{"input_length": 4, "output_length": 1, "timestamp": NaN}\n', "a timestamp of nan"),
        ("a.jsonl", '{"prompt": "x", "timestamp": "noon"}\n', "a.jsonl:1: timestamp is 'noon'"),
        ("a.jsonl", '{"prompt": "x", "max_tokens": 1000000000000}\n', "max_tokens is 1000000000000"),
        ("a.jsonl", "\n", "holds no request"),
        ("a.jsonl.gz", "not gzip", "cannot read"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, name: str, text: str, problem: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        load_workload(str(path))
    assert problem in str(error.value)


def test_block_memory_is_bounded_by_what_repeats() -> None:
    trace = tuple(TraceRequest(40, 4, (0, i + 1)) for i in range(100))
    prompts = PromptStream(Workload("t", trace=trace, block_tokens=20), seed=1, point_id="p", vocab_size=4096)
    starts = np.array([prompts.next().prompt[:20] for _ in range(100)])
    assert (starts == starts[0]).all()
    assert len(prompts._prefixes) == 1
