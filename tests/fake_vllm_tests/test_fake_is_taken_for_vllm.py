"""The tuner's own eyes take the stand-in for a vLLM: its installation, its flags, its failures."""

import re
import signal
import sys
from pathlib import Path

import pytest
from fake_vllm import SITE, make_fake_python, set_behaviour
from fake_vllm.running import launch, serve

from autotune.engine.failures import classify
from autotune.engine.flags import read_flags
from autotune.engine.install import resolve_install

sys.path.append(str(SITE / "vllm" / "fake"))
from failures import BREAKAGES

AT_BOOT = sorted(name for name, breakage in BREAKAGES.items() if breakage.phase != "serving")
EXIT_CODES = {"argparse": 2, "api": 1, "core": 1, "worker": 1, "kill_api": -signal.SIGKILL}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_python(tmp_path_factory.mktemp("fake") / "venv", version="0.33.0")


def test_installation_is_found_without_problems(python: Path) -> None:
    install = resolve_install(python)
    assert (install.version, install.dist_name, install.problems) == ("0.33.0", "vllm", ())


def test_flags_are_read_with_types_and_choices(python: Path) -> None:
    flags = read_flags(resolve_install(python))
    assert flags.accepts("max-num-seqs", 64) and not flags.accepts("max-num-seqs", "many")
    assert flags.accepts("kv-cache-dtype", "fp8") and not flags.accepts("kv-cache-dtype", "fp7")
    assert flags.accepts("kv-cache-memory-bytes", "64M")
    assert flags.accepts("enforce-eager", True) and flags.accepts("served-model-name", "x")
    assert flags.get("no-such-flag") is None


@pytest.mark.parametrize("name", AT_BOOT)
def test_boot_failures_look_real_and_are_classified(python: Path, name: str) -> None:
    breakage = BREAKAGES[name]
    set_behaviour(python, {"fail": name})
    with launch(python) as server:
        code = server.process.wait(20)
        assert code == (int(breakage.text) if breakage.process == "exit" else EXIT_CODES[breakage.process])
        words = re.split(r"\{.*?\}", breakage.text.split("\n")[-1])
        assert all(word in server.log for word in words if breakage.process != "exit")
        if breakage.process in ("core", "worker"):
            assert "Engine core initialization failed. See root cause above." in server.log.splitlines()[-1]
        oom_kills = int(name.startswith("host_oom"))
        failure = classify(server.log_file, exit_code=code, stop_requested=False, oom_kills=oom_kills)
    assert failure is not None and failure.cls.name == name.split(".")[0]


@pytest.mark.parametrize("name", sorted(name for name, b in BREAKAGES.items() if b.phase == "serving"))
def test_failures_under_load_are_classified(python: Path, name: str) -> None:
    set_behaviour(python, {"fail": name, "fail_after_tokens": 5, "time_scale": 0.2})
    with serve(python) as server:
        server.stream({"prompt": [1], "max_tokens": 50})
        failure = classify(server.log_file, exit_code=server.process.wait(5), stop_requested=False)
    assert failure is not None and failure.cls.name == name.split(".")[0]


def test_no_failure_in_a_good_life(python: Path) -> None:
    set_behaviour(python, {})
    with serve(python) as server:
        server.ask("/v1/completions", {"prompt": [1]})
        server.process.terminate()
        code = server.process.wait(5)
        failure = classify(server.log_file, exit_code=code, stop_requested=True)
    assert failure is None or failure.cls.name == "stopped_by_us"
