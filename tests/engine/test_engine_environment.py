"""What an engine is given to run with."""

from pathlib import Path

from autotune.engine.environment import engine_command, engine_environment, serve_arguments
from autotune.engine.install import VllmInstall
from autotune.engine.process import ENGINE_MARK, RUN_MARK, TUNER_MARK, tuner_lives, tuner_mark
from autotune.engine.types import EngineSpec
from autotune.space.config import LaunchConfig


def make_spec(tmp_path: Path, **changes: object) -> EngineSpec:
    """An engine of the folder's own name."""
    values: dict[str, object] = {
        "install": VllmInstall(Path("/opt/v/bin/python"), "0.32.0", "vllm", Path("/opt/v/vllm")),
        "model": "org/some-model",
        "config": LaunchConfig.of({"max-num-seqs": 8}),
        "run_id": "r1",
        "log_path": tmp_path / "log",
        "cache_root": tmp_path / "cache",
        "environ": {
            "PATH": "/bin",
            "VLLM_TRACE_FUNCTION": "1",
            "VLLM_LOGGING_LEVEL": "DEBUG",
            "VLLM_API_KEY": "s3cret",
        },
    }
    return EngineSpec(**{**values, **changes})  # type: ignore[arg-type]


def test_debug_switches_and_secrets_are_taken_out(tmp_path: Path) -> None:
    env = engine_environment(make_spec(tmp_path), "e" * 16)
    assert env["PATH"] == "/bin"
    assert not {"VLLM_TRACE_FUNCTION", "VLLM_LOGGING_LEVEL", "VLLM_API_KEY"} & env.keys()
    assert env["VLLM_NO_USAGE_STATS"] == env["DO_NOT_TRACK"] == "1"
    assert env["VLLM_CACHE_ROOT"] == str(tmp_path / "cache")


def test_marks_name_run_engine_and_this_very_process(tmp_path: Path) -> None:
    env = engine_environment(make_spec(tmp_path), "e" * 16)
    assert (env[RUN_MARK], env[ENGINE_MARK]) == ("r1", "e" * 16)
    assert env[TUNER_MARK] == tuner_mark() and tuner_lives(env[TUNER_MARK])


def test_only_the_engines_mark_differs_between_boots(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    one, other = engine_environment(spec, "a" * 16), engine_environment(spec, "b" * 16)
    assert {name for name in one if one[name] != other[name]} == {ENGINE_MARK}


def test_a_persons_variables_win_over_our_defaults(tmp_path: Path) -> None:
    fixed = LaunchConfig.of({}, {"VLLM_HOST_IP": "10.0.0.1", "VLLM_LOGGING_LEVEL": "WARNING"})
    env = engine_environment(make_spec(tmp_path, fixed=fixed), "e" * 16)
    assert (env["VLLM_HOST_IP"], env["VLLM_LOGGING_LEVEL"]) == ("10.0.0.1", "WARNING")


def test_offline_only_for_a_model_on_disk(tmp_path: Path) -> None:
    assert "HF_HUB_OFFLINE" not in engine_environment(make_spec(tmp_path), "e" * 16)
    assert engine_environment(make_spec(tmp_path, model=str(tmp_path)), "e" * 16)["HF_HUB_OFFLINE"] == "1"


def test_the_device_is_the_only_one_that_the_engine_sees(tmp_path: Path) -> None:
    assert engine_environment(make_spec(tmp_path, device="GPU-1"), "e" * 16)["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert "CUDA_VISIBLE_DEVICES" not in engine_environment(make_spec(tmp_path), "e" * 16)


def test_where_it_listens_is_ours_to_say(tmp_path: Path) -> None:
    fixed = LaunchConfig.of(
        {"host": "0.0.0.0", "port": 8000, "api-key": "x", "served-model-name": "prod", "dtype": "half"}
    )
    words = serve_arguments(make_spec(tmp_path, fixed=fixed), "e" * 16, 4321)
    assert words[:2] == ["serve", "org/some-model"]
    assert words[-6:] == ["--host", "127.0.0.1", "--port", "4321", "--served-model-name", "some-model-" + "e" * 16]
    assert words.count("--host") == words.count("--port") == 1
    assert "--api-key" not in words and "half" in words


def test_a_command_of_ones_own_comes_in_front_of_the_model(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, command=("numactl", "-N0", "vllm", "serve"))
    assert engine_command(spec, "e" * 16, 1)[:5] == ["numactl", "-N0", "vllm", "serve", "org/some-model"]
    assert engine_command(make_spec(tmp_path), "e" * 16, 1)[0] == "/opt/v/bin/python"
