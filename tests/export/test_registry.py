from dataclasses import replace
from pathlib import Path

import pytest
from recommendations import CPU, HUB, NOTHING, PROVENANCE, SECRET, SECRETS

from autotune.errors import UsageError
from autotune.export.registry import Wanted, entries, lookup, register, registry_folder
from autotune.store.recommendation import Recommendation

HERE = Wanted(
    device="NVIDIA H200",
    cpu=False,
    model="Qwen/Qwen3-14B",
    model_revision="8f7a",
    vllm_version="0.32.0",
    host_fingerprint="0123456789ab",
    workload="chat",
    objective="throughput",
)


def tuned(**changes: str) -> Recommendation:
    return replace(HUB, provenance=replace(HUB.provenance, **changes))


def found(wanted: Wanted, *tuned_before: Recommendation) -> tuple[Recommendation, float, tuple[str, ...]]:
    match = lookup(wanted, [(Path("x.json"), r) for r in tuned_before])
    assert match is not None
    return match.recommendation, match.score, match.differences


def test_what_was_registered_is_found_exactly(tmp_path: Path) -> None:
    path = register(HUB, tmp_path)
    match = lookup(HERE, entries(tmp_path))
    assert match is not None and match.exact and match.score == 1
    assert (match.recommendation, match.path) == (HUB, path)


def test_tuning_the_same_again_replaces_the_entry(tmp_path: Path) -> None:
    assert register(HUB, tmp_path) == register(replace(HUB, reasons=("again",)), tmp_path)
    assert register(tuned(workload="rag"), tmp_path) != register(HUB, tmp_path)
    assert len(entries(tmp_path)) == 2


def test_nothing_is_registered_where_nothing_works(tmp_path: Path) -> None:
    assert register(NOTHING, tmp_path) is None and entries(tmp_path) == []


def test_no_secret_is_registered(tmp_path: Path) -> None:
    path = register(SECRETS, tmp_path)
    assert path is not None and SECRET not in path.read_text()


@pytest.mark.parametrize("changes", [{"device": "NVIDIA A100-SXM4-80GB"}, {"model": "Qwen/Qwen3-8B"}])
def test_another_gpu_or_model_is_never_near(changes: dict[str, str]) -> None:
    assert lookup(HERE, [(Path("x.json"), tuned(**changes))]) is None


@pytest.mark.parametrize(
    ("changes", "score", "difference"),
    [
        ({"vllm_version": "0.32.1"}, 0.85, "vLLM: tuned on 0.32.1, here 0.32.0"),
        ({"vllm_version": "0.24.0"}, 0.65, "vLLM: tuned on 0.24.0, here 0.32.0"),
        ({"workload": "rag"}, 0.75, "workload: tuned for rag, here chat"),
        ({"objective": "latency"}, 0.85, "objective: tuned for latency, here throughput"),
        ({"model_revision": "beef"}, 0.8, "model: tuned on revision beef, here 8f7a"),
        ({"host_fingerprint": "ff"}, 0.9, "host: tuned for NVIDIA H200, ff, here NVIDIA H200, 0123456789ab"),
    ],
)
def test_a_near_match_says_what_differs(changes: dict[str, str], score: float, difference: str) -> None:
    _, got, differences = found(HERE, tuned(**changes))
    assert (got, differences) == (score, (difference,))


def test_the_nearest_wins_and_among_equals_the_newest() -> None:
    old, new = tuned(measured_at="2026-01-01"), tuned(measured_at="2026-02-01")
    other_version, other_workload = tuned(vllm_version="0.24.0"), tuned(workload="rag")
    assert found(HERE, other_version, other_workload)[0] == other_workload
    assert found(HERE, old, other_workload, new)[0] == new
    assert found(HERE, other_version, tuned(vllm_version="0.32.1"))[0].provenance.vllm_version == "0.32.1"


def test_any_workload_will_do_where_none_was_asked_for() -> None:
    assert found(replace(HERE, workload=None, objective=None), tuned(workload="rag"))[1:] == (1, ())


def test_a_workload_is_asked_for_by_its_name_or_with_its_load() -> None:
    loaded = tuned(workload="chat, 256 in flight")
    assert found(HERE, loaded)[2] == ()
    assert found(replace(HERE, workload="chat, 256 in flight"), loaded)[2] == ()
    assert found(replace(HERE, workload="chat, 8 in flight"), loaded)[2] != ()


def test_the_same_files_in_another_folder_are_the_same_model() -> None:
    moved = tuned(model="/srv/Qwen3-14B", model_revision="sha256:1")
    assert found(replace(HERE, model="/data/Qwen3-14B", model_revision="sha256:1"), moved)[2] == ()
    assert found(replace(HERE, model="/data/Qwen3-14B", model_revision="sha256:2"), moved)[1] == 0.8
    assert found(replace(HERE, model="Qwen/Qwen3-14B", model_revision="unknown"), moved)[1] == 0.8


def test_a_cpu_takes_what_was_tuned_on_another_cpu_and_never_a_gpus() -> None:
    here = Wanted(
        device="Intel Xeon", cpu=True, model="/srv/models/tiny", model_revision="unknown", vllm_version="0.32.0",
        host_fingerprint="aa",
    )  # fmt: skip
    assert found(here, CPU)[1] == 0.9
    assert lookup(here, [(Path("x"), replace(CPU, provenance=replace(PROVENANCE, model="/srv/models/tiny")))]) is None


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    register(HUB, tmp_path)
    (tmp_path / "half.json").write_text('{"schema_version": 1, "verd')
    (tmp_path / "newer.json").write_text('{"schema_version": 99}')
    (tmp_path / "list.json").write_text("[]")
    assert [r for _, r in entries(tmp_path)] == [HUB]


def test_the_folder_follows_xdg(tmp_path: Path) -> None:
    assert registry_folder({"XDG_DATA_HOME": "/d", "HOME": "/h"}) == Path("/d/vllm-autotune/configs")
    assert registry_folder({"HOME": "/h"}) == Path("/h/.local/share/vllm-autotune/configs")


def test_a_folder_that_cannot_be_written_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="cannot write"):
        register(HUB, Path("/proc/none"))
