"""Each way to fail looks from outside like the real one; conditions decide when it strikes."""

import signal
import subprocess
import time
from pathlib import Path

import pytest
from fake_vllm import make_fake_python, set_behaviour
from fake_vllm.running import launch, serve


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_python(tmp_path_factory.mktemp("fake") / "venv")


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--no-such-flag", "1"), 2, "vllm: error: unrecognized arguments: --no-such-flag 1"),
        (("--kv-cache-dtype", "fp7"), 2, "argument --kv-cache-dtype: invalid choice: 'fp7'"),
        (("--max-num-seqs", "abc"), 2, "argument --max-num-seqs: invalid int value: 'abc'"),
        (("--max-num-batched-tokens", "8", "--max-num-seqs", "16"), 1, "must be greater than or equal to max_num_seqs"),
        (("--max-model-len", "99999"), 1, "User-specified max_model_len (99999) is greater than the derived"),
        (("--no-enable-chunked-prefill", "--max-num-batched-tokens", "64"), 1, "is smaller than max_model_len (4096)"),
        (("--quantization", "awq"), 1, "Cannot find the config file for awq"),
        (("--quantization", "bitsandbytes"), 1, "Unknown quantization method: bitsandbytes"),
        (("--kv-cache-memory-bytes", "1M"), 1, "the estimated maximum model length is 1024"),
        (("--gpu-memory-utilization", "0.01"), 1, "No available memory for the cache blocks"),
    ],
)
def test_refuses_by_itself_what_vllm_refuses(python: Path, flags: tuple[str, ...], code: int, words: str) -> None:
    set_behaviour(python, {})
    with launch(python, *flags) as server:
        assert server.process.wait(20) == code
        assert words in server.log


def test_missing_model_folder(python: Path) -> None:
    set_behaviour(python, {})
    with launch(python, model="/no/such/folder") as server:
        assert server.process.wait(20) == 1
        assert "HFValidationError" in server.log


def test_taken_port(python: Path) -> None:
    set_behaviour(python, {})
    with serve(python) as first, launch(python, port=first.port) as second:
        assert second.process.wait(20) == 1
        assert "[Errno 98] Address already in use" in second.log
        assert first.ask("/health")[0] == 200


def test_free_memory_taken_by_others(python: Path) -> None:
    set_behaviour(python, {"memory": {"total_bytes": 8 << 30, "free_bytes": 7 << 30}})
    with launch(python) as server:
        assert server.process.wait(20) == 1
        assert "Free memory on device cuda:0 (7.00/8.00 GiB) on startup is less than desired" in server.log
    with serve(python, "--gpu-memory-utilization", "0.8"):
        pass


def test_conditions_on_flags(python: Path) -> None:
    set_behaviour(python, {"when": {"max-num-seqs": ">=64", "enforce-eager": False}, "fail": "oom_graph"})
    with launch(python, "--max-num-seqs", "64") as server:
        assert server.process.wait(20) == 1
    with serve(python, "--max-num-seqs", "63"), serve(python, "--max-num-seqs", "64", "--enforce-eager"):
        pass
    with launch(python) as server:
        assert server.process.wait(20) == 1, "defaults count as values"


def test_only_the_first_boots(tmp_path: Path) -> None:
    python = make_fake_python(tmp_path / "venv", {"times": 2, "fail": "cache_poisoned"})
    codes = []
    for _ in range(2):
        with launch(python) as server:
            codes.append(server.process.wait(20))
    assert codes == [1, 1]
    with serve(python):
        pass


def test_by_chance_and_repeatably(python: Path) -> None:
    set_behaviour(python, {"probability": 0.5, "fail": "unknown"})
    outcomes = [_comes_up(python, f"name-{n}") for n in range(12)]
    assert 0 < sum(outcomes) < 12
    assert [_comes_up(python, f"name-{n}") for n in range(3)] == outcomes[:3]


def _comes_up(python: Path, name: str) -> bool:
    with launch(python, "--served-model-name", name) as server:
        return server.wait_ready()


def test_a_typo_in_the_behaviour_ends_the_boot(python: Path) -> None:
    set_behaviour(python, {"fial": "oom_graph"})
    with launch(python) as server:
        assert server.process.wait(20) == 1
        assert "unknown Behaviour fields ['fial']" in server.log


def test_environment_variable_beats_the_file(python: Path) -> None:
    set_behaviour(python, {"fail": "unknown"})
    with serve(python, env={"FAKE_VLLM": "{}"}) as server:
        assert server.ask("/health")[0] == 200


@pytest.mark.parametrize("phase", ["imports", "config", "weights", "compile", "profile", "graphs", "server"])
def test_hangs_in_the_phase(python: Path, phase: str) -> None:
    set_behaviour(python, {"hang": phase})
    with launch(python) as server:
        time.sleep(0.6)
        assert server.process.poll() is None
        assert "Application startup complete" not in server.log
        with pytest.raises(OSError):
            server.ask("/health")


@pytest.mark.parametrize(("manner", "ends"), [("hang", False), ("lost", False), ("die", True)])
def test_sigterm_while_the_engine_starts(python: Path, manner: str, ends: bool) -> None:
    set_behaviour(python, {"boot_s": {"weights": 0.6}, "sigterm_in_start": manner})
    with launch(python) as server:
        while "Starting to load model" not in server.log:
            time.sleep(0.01)
        server.process.terminate()
        if manner == "lost":
            assert server.wait_ready()
        elif ends:
            assert server.process.wait(5) != 0
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                server.process.wait(1.0)


def test_sigint_while_the_engine_starts(python: Path) -> None:
    set_behaviour(python, {"hang": "weights"})
    with launch(python) as server:
        while "Starting to load model" not in server.log:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(5) == -signal.SIGINT
        assert "VLLM::EngineCor" not in server.family()
