"""Throughput follows the model of perf.py, so that a study on the stand-in has a known answer."""

import http.client
import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from fake_vllm import SITE, make_fake_python, set_behaviour
from fake_vllm.running import Server, serve

OUTPUT, PROMPT, CLIENTS = 20, 32, 24
ASK = "import json, sys; from vllm.fake.behaviour import Perf; from vllm.fake.perf import steady_output_tps; "
ASK += "p, *rest = json.loads(sys.argv[1]); print(steady_output_tps(Perf(**p), *rest))"
PERF = {"step_s": 0.02, "per_seq_s": 0.001, "knee_seqs": 12, "per_seq_over_knee_s": 0.004}


def steady_output_tps(*arguments: object) -> float:
    """What the model of perf.py says, asked in a process of its own: this one may hold a real vLLM."""
    command = [sys.executable, "-c", ASK, json.dumps(arguments)]
    done = subprocess.run(command, env={"PYTHONPATH": str(SITE)}, capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_python(tmp_path_factory.mktemp("fake") / "venv")


def closed_loop_tps(server: Server, clients: int = CLIENTS, window_s: float = 1.6) -> float:
    """Output tokens per second in the middle of a closed loop; the clients go on until the server ends."""

    def client(number: int) -> None:
        turn = 0
        with suppress(OSError, http.client.HTTPException):
            while True:
                turn += 1
                server.ask("/v1/completions", {"prompt": [number + 1, turn] * (PROMPT // 2), "max_tokens": OUTPUT})

    for number in range(clients):
        threading.Thread(target=client, args=(number,), daemon=True).start()
    time.sleep(0.6)
    before, began = server.metric("generation_tokens_total"), time.monotonic()
    time.sleep(window_s)
    return (server.metric("generation_tokens_total") - before) / (time.monotonic() - began)


@pytest.mark.parametrize(
    ("flags", "seqs", "tokens", "extra"),
    [
        (("--max-num-seqs", "1"), 1, 2048, {}),
        (("--max-num-seqs", "4"), 4, 2048, {}),
        (("--max-num-seqs", "12"), 12, 2048, {}),
        (("--max-num-seqs", "24"), 24, 2048, {}),
        (("--max-num-seqs", "12", "--enforce-eager"), 12, 2048, {"enforce-eager": True}),
    ],
)
def test_throughput_is_what_the_model_says(python: Path, flags: tuple, seqs: int, tokens: int, extra: dict) -> None:
    set_behaviour(python, {"perf": PERF})
    config = {"max-num-seqs": seqs, "max-num-batched-tokens": tokens, **extra}
    expected = steady_output_tps(PERF, config, CLIENTS, PROMPT, OUTPUT, 10**6)
    with serve(python, *flags, "--no-enable-prefix-caching") as server:
        assert closed_loop_tps(server) == pytest.approx(expected, rel=0.2)


def test_the_model_has_its_best_value_at_the_knee() -> None:
    rates = {
        seqs: steady_output_tps(PERF, {"max-num-seqs": seqs, "max-num-batched-tokens": 2048}, 64, PROMPT, OUTPUT, 10**6)
        for seqs in (1, 2, 4, 8, 12, 16, 24, 48)
    }
    assert max(rates, key=rates.__getitem__) in (12, 16)
    assert rates[12] > 5 * rates[1]


@pytest.mark.slow
def test_a_small_kv_cache_limits_and_preempts(python: Path) -> None:
    set_behaviour(python, {"perf": PERF})
    room = ("--max-num-seqs", "12", "--max-model-len", "128", "--no-enable-prefix-caching")
    with serve(python, *room, "--kv-cache-memory-bytes", "256k", "--block-size", "4") as server:
        slow = closed_loop_tps(server)
        assert server.metric("num_preemptions_total") > 0
    with serve(python, *room, "--kv-cache-memory-bytes", "64M") as server:
        assert closed_loop_tps(server) > 1.4 * slow
        assert server.metric("num_preemptions_total") == 0


@pytest.mark.slow
def test_noise_is_drawn_from_the_seed(python: Path) -> None:
    set_behaviour(python, {"perf": PERF, "boot_noise": 0.5, "seed": 3})
    rates = []
    for name in ("a", "a", "b"):
        with serve(python, "--max-num-seqs", "4", "--served-model-name", name) as server:
            rates.append(closed_loop_tps(server, clients=4))
    assert rates[0] == pytest.approx(rates[1], rel=0.2)
    assert rates[2] != pytest.approx(rates[0], rel=0.2)
