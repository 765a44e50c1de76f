"""Container limits, from folders laid out like the kernel's."""

import os
from pathlib import Path

import psutil

from autotune.host.cgroup import Limits, read_limits
from autotune.host.cpu import available_ram_bytes, read_cpu, read_memory

GIB = 1024**3


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_version_2_takes_the_tightest_limit_up_to_the_root(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/system/job\n",
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/system/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/system/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/system/memory.stat": f"anon 5\ninactive_file {GIB}\n",
            "sys/fs/cgroup/system/cpu.max": "300000 100000\n",
            "sys/fs/cgroup/system/job/memory.max": f"{16 * GIB}\n",
            "sys/fs/cgroup/system/job/memory.current": f"{GIB}\n",
            "sys/fs/cgroup/system/job/cpu.max": "max 100000\n",
        },
    )
    assert read_limits(root) == Limits(8 * GIB, 6 * GIB, 3.0)


def test_inside_a_container_only_the_root_of_the_tree_exists(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/docker/abcdef\n",
            "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/memory.current": f"{5 * GIB}\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
        },
    )
    assert read_limits(root) == Limits(4 * GIB, 0, 0.5)


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/x\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{2 * GIB}\n",
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 2}\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
        },
    )
    assert read_limits(root) == Limits(2 * GIB, GIB + GIB // 2, 1.5)


def test_no_limit_is_none(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu,cpuacct:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert read_limits(root) == Limits()
    assert read_limits(tmp_path / "empty") == Limits()


def test_memory_is_cut_to_the_limit() -> None:
    machine = psutil.virtual_memory()
    assert read_memory(Limits())[0] == machine.total
    assert read_memory(Limits(memory_bytes=GIB, memory_free_bytes=GIB // 4)) == (GIB, GIB // 4)
    total, available = read_memory(Limits(memory_bytes=2 * machine.total, memory_free_bytes=2 * machine.total))
    assert total == machine.total and available <= total


def test_cores_are_those_that_may_be_used(tmp_path: Path) -> None:
    write(tmp_path, {"proc/cpuinfo": "model name\t: Fast CPU\nflags\t\t: sse avx2 amx_tile x\n\nmodel name: 2\n"})
    cpu = read_cpu(Limits(cores=0.5), tmp_path)
    assert (cpu.model, cpu.usable_cores, cpu.flags) == ("Fast CPU", 0.5, ("avx2", "amx_tile"))
    assert read_cpu(Limits(), tmp_path).usable_cores == len(os.sched_getaffinity(0))


def test_an_arm_processor_has_its_own_words(tmp_path: Path) -> None:
    write(tmp_path, {"proc/cpuinfo": "processor : 0\nFeatures : fp asimd sve2 bf16\n\n"})
    cpu = read_cpu(Limits(), tmp_path)
    assert cpu.model and cpu.flags == ("asimd", "bf16", "sve2")


def test_available_memory_is_of_this_machine() -> None:
    assert 0 < available_ram_bytes() <= psutil.virtual_memory().total
