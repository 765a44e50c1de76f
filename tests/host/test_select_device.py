"""Which device is taken, and what is said where there is none such."""

from dataclasses import replace

import pytest

from autotune.errors import UsageError
from autotune.host.select import class_hint, select_device
from autotune.host.types import GIB, Cpu, Gpu, GpuProcess, Host

NOTHING: dict[str, str] = {}


def gpu(index: int, free_gib: int = 70, busy: bool = False, problem: str | None = None, uuid: str = "") -> Gpu:
    processes = (GpuProcess(9, "train", GIB),) if busy else ()
    uuid = uuid or f"GPU-{index}a2b3c4d"
    return Gpu(
        index, uuid, "NVIDIA H100 80GB HBM3", 80 * GIB, free_gib * GIB, (9, 0), processes=processes, problem=problem
    )


def host(*gpus: Gpu, problem: str | None = None) -> Host:
    return Host(Cpu("Some CPU", 2, 4, 2.0), 64 * GIB, 50 * GIB, gpus, gpu_problem=problem)


def test_auto_prefers_an_idle_gpu_over_a_busy_one_with_more_memory() -> None:
    device = select_device(host(gpu(0, 79, busy=True), gpu(1, 60), gpu(2, 70)), environ=NOTHING)
    assert device.gpu and device.gpu.index == 2
    assert device.why == "idle, most free memory of 3 GPUs"
    assert (device.kind, device.class_hint, device.compute_capability) == ("cuda", "h100", (9, 0))


def test_auto_takes_a_busy_gpu_where_all_are_and_warns() -> None:
    device = select_device(host(gpu(0, 10, busy=True), gpu(1, 60, busy=True)), environ=NOTHING)
    assert device.gpu and device.gpu.index == 1
    assert "1 other process computing on it will disturb" in device.why


def test_auto_leaves_out_what_cannot_be_used() -> None:
    device = select_device(host(gpu(0, problem="lost"), gpu(1)), environ=NOTHING)
    assert device.gpu and device.gpu.index == 1 and device.why == "the only GPU"


@pytest.mark.parametrize(("visible", "index"), [("1", 1), ("GPU-2a2b3c", 2), ("7,2", 2)])
def test_auto_keeps_to_the_visible_devices(visible: str, index: int) -> None:
    device = select_device(host(gpu(0, 79), gpu(1), gpu(2)), environ={"CUDA_VISIBLE_DEVICES": visible})
    assert device.gpu and device.gpu.index == index
    assert device.why == "the only GPU that CUDA_VISIBLE_DEVICES shows"


@pytest.mark.parametrize("visible", ["", "-1", "9"])
def test_hidden_gpus_leave_the_cpu_and_say_why(visible: str) -> None:
    device = select_device(host(gpu(0)), environ={"CUDA_VISIBLE_DEVICES": visible})
    assert device.kind == "cpu" and "hides every GPU" in device.why


def test_without_a_gpu_it_is_the_cpu() -> None:
    device = select_device(host(problem="no driver"), environ=NOTHING)
    assert (device.kind, device.name, device.class_hint, device.why) == ("cpu", "Some CPU", "cpu", "no driver")
    assert device.total_bytes == 64 * GIB


@pytest.mark.parametrize("wanted", ["1", "GPU-1a2b3c4d", "gpu-1a2b"])
def test_a_gpu_can_be_named(wanted: str) -> None:
    device = select_device(host(gpu(0), gpu(1, busy=True)), wanted)
    assert device.gpu and device.gpu.index == 1 and device.why == "asked for"


def test_the_cpu_can_be_named() -> None:
    assert select_device(host(gpu(0)), "cpu").kind == "cpu"


@pytest.mark.parametrize("wanted", ["7", "GPU-ffff", "GPU", "h100", "-1", ""])
def test_an_unknown_gpu_is_refused_with_what_exists(wanted: str) -> None:
    with pytest.raises(UsageError, match=r"no such GPU here\. There is: 0 \(NVIDIA H100 80GB HBM3, GPU-0a2b3c4d\)"):
        select_device(host(gpu(0)), wanted)


def test_an_unknown_gpu_on_a_host_without_any_says_why_there_is_none() -> None:
    with pytest.raises(UsageError, match=r"Reason: no driver\. Use --gpu cpu"):
        select_device(host(problem="no driver"), "0")


def test_a_gpu_with_a_problem_is_refused_with_it() -> None:
    with pytest.raises(UsageError, match="--gpu 0 cannot be used: lost"):
        select_device(host(gpu(0, problem="lost")), "0")


def test_the_index_of_a_card_with_mig_instances_is_ambiguous() -> None:
    split = host(gpu(0, uuid="MIG-aaaa1"), gpu(0, uuid="MIG-bbbb2"))
    with pytest.raises(UsageError, match=r"more than one device: name one by its UUID \(MIG-aaaa1, MIG-bbbb2\)"):
        select_device(split, "0")
    assert select_device(split, "MIG-bbbb2").gpu == split.gpus[1]


@pytest.mark.parametrize(
    ("name", "gib", "hint"),
    [
        ("NVIDIA H200", 141, "h200"),
        ("NVIDIA H100 80GB HBM3", 80, "h100"),
        ("NVIDIA A100-SXM4-80GB", 80, "a100-80g"),
        ("NVIDIA A100-PCIE-40GB", 40, "a100-40g"),
        ("NVIDIA B200", 180, "b200"),
        ("NVIDIA L40S", 48, "l40s"),
        ("NVIDIA L4", 24, "l4"),
        ("NVIDIA A10G", 24, "a10g"),
        ("NVIDIA GeForce RTX 4090", 24, "rtx-4090"),
        ("NVIDIA GeForce RTX 3090 Ti", 24, "rtx-3090-ti"),
        ("Tesla T4", 16, "t4"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 96, "rtx-pro-6000-blackwell"),
        ("Graphics Device", 16, ""),
    ],
)
def test_models_have_short_spellings(name: str, gib: int, hint: str) -> None:
    assert class_hint(name, gib * GIB) == hint


def test_the_fingerprint_covers_what_matters_and_nothing_else() -> None:
    one = host(gpu(0), gpu(1))
    same = replace(host(gpu(1, 3), gpu(0, 5, busy=True)), kernel="other", ram_available_bytes=1)
    assert one.fingerprint() == same.fingerprint() and len(one.fingerprint()) == 12
    others = [
        host(gpu(0)),
        replace(one, driver_version="1"),
        replace(one, cpu=replace(one.cpu, usable_cores=1.0)),
        replace(one, ram_total_bytes=128 * GIB),
    ]
    assert len({one.fingerprint(), *(other.fingerprint() for other in others)}) == 5


def test_a_host_becomes_plain_data() -> None:
    data = host(gpu(0, busy=True)).to_dict()
    assert data["gpus"][0]["processes"][0]["name"] == "train"
    assert data["fingerprint"] == host(gpu(0)).fingerprint()
