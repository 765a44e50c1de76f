import pytest

from autotune.errors import UsageError
from autotune.space.choose import choose_space
from autotune.space.facts import GIB, DeviceFacts


def gpu(name, gib, capability):
    return DeviceFacts("cuda", name, int(gib * GIB), capability)


CPU = DeviceFacts("cpu", "AMD EPYC 9B14", 24 * GIB)

FITS = [
    (gpu("NVIDIA H200", 140.4, (9, 0)), "h200"),
    (gpu("NVIDIA H200 NVL", 140.4, (9, 0)), "h200"),
    (gpu("NVIDIA H100 80GB HBM3", 79.6, (9, 0)), "h100"),
    (gpu("NVIDIA H100 NVL", 93.6, (9, 0)), "h100"),
    (gpu("NVIDIA B200", 179, (10, 0)), "b200"),
    (gpu("NVIDIA GB200", 184, (10, 0)), "b200"),
    (gpu("NVIDIA A100-SXM4-80GB", 80, (8, 0)), "a100-80g"),
    (gpu("NVIDIA A100-PCIE-40GB", 39.6, (8, 0)), "a100-40g"),
    (gpu("NVIDIA L40S", 45, (8, 9)), "l40s"),
    (gpu("NVIDIA L4", 22.5, (8, 9)), "l4"),
    (gpu("NVIDIA A10G", 22.5, (8, 6)), "a10g"),
    (gpu("NVIDIA A10", 22.5, (8, 6)), "a10g"),
    (gpu("NVIDIA GeForce RTX 4090", 24, (8, 9)), "rtx-4090"),
    (gpu("NVIDIA GeForce RTX 3090 Ti", 24, (8, 6)), "rtx-3090"),
    (gpu("Tesla T4", 15, (7, 5)), "t4"),
    (CPU, "cpu"),
]


@pytest.mark.parametrize(("device", "name"), FITS, ids=lambda value: getattr(value, "name", value))
def test_a_known_device_gets_its_own_space(device, name):
    file, because = choose_space(device)
    assert file.name == name
    assert because.startswith(f"{name}: the device is")


NEAREST = [
    (gpu("NVIDIA L40", 45, (8, 9)), "l40s", "same compute capability 8.9, 45 GiB here, 44 to 49 there"),
    (gpu("NVIDIA GH200 480GB", 95, (9, 0)), "h100", "same compute capability 9.0, 95 GiB here"),
    (gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.8, (9, 0)), "h100", "same name, 10 GiB here, 75 to 97 there"),
    (gpu("NVIDIA GeForce RTX 4090 Laptop GPU", 16, (8, 9)), "rtx-4090", "same name, 16 GiB here"),
    (gpu("NVIDIA A30", 24, (8, 0)), "a100-40g", "same compute capability 8.0, 24 GiB here"),
    (gpu("NVIDIA RTX A6000", 48, (8, 6)), "rtx-3090", "same compute capability 8.6"),
    (gpu("NVIDIA B300", 268, (10, 3)), "b200", "same generation"),
    (gpu("Tesla V100-SXM2-32GB", 32, (7, 0)), "t4", "same generation"),
]


@pytest.mark.parametrize(("device", "name", "reason"), NEAREST, ids=lambda value: getattr(value, "name", None))
def test_the_nearest_space_is_said_aloud(device, name, reason):
    file, because = choose_space(device)
    assert file.name == name
    assert because.startswith(f"no space for {device.name!r} - nearest is {name}: {reason}")


@pytest.mark.parametrize("capability", [(12, 0), None])
def test_a_device_of_an_unknown_generation_gets_the_default(capability):
    file, because = choose_space(gpu("NVIDIA New", 96, capability))
    assert file.name == "default"
    assert because.startswith("default: no space for 'NVIDIA New' (96 GiB")


def test_a_space_may_be_asked_for_by_name():
    file, because = choose_space(CPU, "h200")
    assert (file.name, because) == ("h200", "h200: asked for by name")


def test_a_file_takes_the_fixed_flags_of_the_device(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("parameters: {max-num-seqs: [1, 8]}\n")
    file, because = choose_space(CPU, str(path))
    assert because == f"{path}: asked for by file"
    assert file.fixed.flags["distributed-executor-backend"] == "uni"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("h20", "no search space 'h20'; did you mean 'h200'?"),
        ("nothing-like-it", "no search space 'nothing-like-it'; expected one of: auto, a100-40g"),
        ("missing.yaml", "the space file 'missing.yaml' does not exist"),
        ("/tmp/", "the search space '/tmp/' is a folder; give a YAML file"),
    ],
)
def test_a_name_that_is_nothing_is_refused(name, said):
    with pytest.raises(UsageError) as caught:
        choose_space(CPU, name)
    assert str(caught.value).startswith(said)
