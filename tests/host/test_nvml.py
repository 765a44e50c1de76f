"""GPUs through NVML, with a stand-in for the driver: this is the one part that test machines do not have."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.host.detect import read_host
from autotune.host.nvml import Nvml

GIB = 1024**3


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__({3: "Not Supported", 15: "GPU is lost", 999: "Unknown Error"}.get(value, f"code {value}"))


class FakeNvml:
    """The part of ``pynvml`` that is used. ``refuse`` maps function names to NVML's error codes."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    nvmlMemory_v2 = 2
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18

    def __init__(self, gpus: int = 1, refuse: dict[str, int] | None = None, mig: dict[int, int] | None = None) -> None:
        self.gpus, self.refuse, self.mig = gpus, refuse or {}, mig or {}
        self.old_driver = False
        self.compute = [SimpleNamespace(pid=41, usedGpuMemory=7 * GIB), SimpleNamespace(pid=42, usedGpuMemory=None)]
        self.answers: dict[str, Callable[..., Any]] = {
            "nvmlInit": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "580.65.06",
            "nvmlSystemGetCudaDriverVersion": lambda: 13010,
            "nvmlDeviceGetCount": lambda: self.gpus,
            "nvmlDeviceGetHandleByIndex": lambda index: f"GPU-{index}{index}{index}{index}aa",
            "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
            "nvmlDeviceGetMigMode": lambda handle: (int(self._index(handle) in self.mig), 0),
            "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": self._instance,
            "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetUUID": lambda handle: handle,
            "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
            "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
            "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
            "nvmlDeviceGetClockInfo": lambda handle, clock: 1980,
            "nvmlDeviceGetMaxClockInfo": lambda handle, clock: 1985,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: self.compute,
            "nvmlDeviceGetGraphicsRunningProcesses": lambda handle: [SimpleNamespace(pid=7, usedGpuMemory=1)],
            "nvmlSystemGetProcessName": lambda pid: f"/usr/bin/job{pid}",
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 123_456,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x4 | 0x20 | 0x1,
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answer = self.answers[name]

        def call(*arguments: Any) -> Any:
            if name in self.refuse:
                raise NVMLError(self.refuse[name])
            return answer(*arguments)

        return call

    def _memory(self, handle: str, version: int = 1) -> Any:
        """The first version holds the driver's own share in ``used`` and does not name it."""
        if version == 2 and self.old_driver:
            raise NVMLError(25)
        memory = {"total": 141 * GIB, "free": 100 * GIB}
        return SimpleNamespace(**memory, reserved=GIB) if version == 2 else SimpleNamespace(**memory)

    def _index(self, handle: str) -> int:
        return int(handle[4])

    def _instance(self, handle: str, number: int) -> str:
        if number >= self.mig[self._index(handle)]:
            raise NVMLError(6)
        return f"MIG-{self._index(handle)}-{number}"


def read(fake: FakeNvml, root: Path = Path("/nonexistent")) -> Any:
    return Nvml(fake, root, host_memory=lambda: (128 * GIB, 96 * GIB), process_name=lambda pid: None).read()


def test_a_gpu_is_read_with_all_that_matters() -> None:
    reading = read(FakeNvml())
    (gpu,) = reading.gpus
    assert (reading.driver_version, reading.cuda_version, reading.problem) == ("580.65.06", "13.1", None)
    assert (gpu.index, gpu.uuid, gpu.name) == (0, "GPU-0000aa", "NVIDIA H200")
    assert (gpu.total_bytes, gpu.free_bytes) == (140 * GIB, 100 * GIB)
    assert (gpu.compute_capability, gpu.power_limit_w, gpu.mig) == ((9, 0), 700.0, False)
    assert (gpu.pcie_generation, gpu.pcie_width) == (5, 16)
    assert (gpu.sm_clock_mhz, gpu.max_sm_clock_mhz) == (1980, 1985)


def test_processes_are_listed_and_only_compute_counts_as_such() -> None:
    (gpu,) = read(FakeNvml()).gpus
    assert [(p.pid, p.name, p.used_bytes, p.kind) for p in gpu.processes] == [
        (41, "job41", 7 * GIB, "compute"),
        (42, "job42", None, "compute"),
        (7, "job7", 1, "graphics"),
    ]
    assert [process.pid for process in gpu.compute_processes] == [41, 42]


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (9, "no NVIDIA driver and no NVIDIA GPU found"),
        (12, "no NVIDIA driver and no NVIDIA GPU found"),
        (18, "upgraded while its old kernel module still runs: reboot"),
        (4, "no permission to use the NVIDIA driver"),
        (999, "does not answer (Unknown Error): does nvidia-smi work"),
    ],
)
def test_a_driver_that_does_not_open_is_one_sentence(code: int, sentence: str) -> None:
    reading = read(FakeNvml(refuse={"nvmlInit": code}))
    assert reading.gpus == ()
    assert sentence in (reading.problem or "")


def test_a_container_without_the_nvidia_runtime_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM")
    assert "--gpus all" in read(FakeNvml(refuse={"nvmlInit": 12}), tmp_path).problem


def test_a_card_without_a_driver_is_recognised(tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    assert "install the driver" in read(FakeNvml(refuse={"nvmlInit": 12}), tmp_path).problem


def test_details_that_the_driver_refuses_are_unknown_not_fatal() -> None:
    refused = [name for name in FakeNvml().answers if name.startswith("nvmlDeviceGet")]
    needed = {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName"}
    fake = FakeNvml(refuse={**dict.fromkeys(set(refused) - needed, 3), "nvmlSystemGetProcessName": 3})
    (gpu,) = read(fake).gpus
    assert (gpu.compute_capability, gpu.power_limit_w, gpu.pcie_generation, gpu.sm_clock_mhz) == (None,) * 4
    assert gpu.processes == () and gpu.problem is None


def test_an_old_driver_does_not_tell_what_it_reserves() -> None:
    fake = FakeNvml()
    fake.old_driver = True
    (gpu,) = read(fake).gpus
    assert (gpu.total_bytes, gpu.free_bytes) == (141 * GIB, 100 * GIB)


def test_a_gpu_without_memory_of_its_own_uses_ram() -> None:
    (gpu,) = read(FakeNvml(refuse={"nvmlDeviceGetMemoryInfo": 3})).gpus
    assert (gpu.total_bytes, gpu.free_bytes, gpu.unified_memory) == (128 * GIB, 96 * GIB, True)


def test_a_lost_gpu_is_listed_with_its_problem() -> None:
    reading = read(FakeNvml(refuse={"nvmlDeviceGetHandleByIndex": 15}))
    assert "fell off the bus" in reading.gpus[0].problem
    assert reading.problem.startswith("GPU 0: GPU is lost")


def test_a_driver_that_shows_no_gpu_says_so() -> None:
    assert read(FakeNvml(gpus=0)).problem == "the NVIDIA driver works, but shows no GPU"


def test_mig_instances_stand_for_the_card() -> None:
    reading = read(FakeNvml(gpus=2, mig={1: 2}))
    assert [(g.index, g.uuid, g.mig) for g in reading.gpus] == [
        (0, "GPU-0000aa", False),
        (1, "MIG-1-0", True),
        (1, "MIG-1-1", True),
    ]


def test_mig_mode_without_an_instance_is_a_problem_of_that_card_only() -> None:
    reading = read(FakeNvml(gpus=2, mig={0: 0}))
    assert "no instance" in reading.gpus[0].problem and reading.problem is None


def test_the_state_of_a_running_gpu_can_be_sampled() -> None:
    nvml = Nvml(FakeNvml())
    assert nvml.free_bytes("GPU-0000aa") == 100 * GIB
    assert nvml.compute_pids("GPU-0000aa") == {41, 42}
    assert nvml.energy_mj("GPU-0000aa") == 123_456
    assert nvml.sm_clock_mhz("GPU-0000aa") == 1980
    assert nvml.throttle_reasons("GPU-0000aa") == ("power cap", "software thermal slowdown")


@pytest.mark.parametrize("refused", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_samples_of_a_gpu_that_is_not_there_are_none(refused: str) -> None:
    nvml = Nvml(FakeNvml(refuse={refused: 9, "nvmlDeviceGetHandleByUUID": 6}))
    assert nvml.free_bytes("x") is None and nvml.compute_pids("x") is None and nvml.energy_mj("x") is None
    assert nvml.sm_clock_mhz("x") is None and nvml.throttle_reasons("x") is None


def test_the_host_holds_what_nvml_tells() -> None:
    host = read_host(Nvml(FakeNvml(gpus=2)))
    assert len(host.gpus) == 2 and host.driver_version == "580.65.06" and host.gpu_problem is None


def test_this_machine_is_read_without_a_traceback() -> None:
    host = read_host()
    assert host.gpus or host.gpu_problem
