"""A survey on a terminal: four short tables, and a line of advice where something is missing."""

import json
import sys
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autotune.engine.install import HOW_TO_INSTALL
from autotune.host.types import GIB, Cpu, Gpu, GpuProcess, Host
from autotune.space.config import FlagValue
from autotune.space.parameters import Parameter, SearchSpace
from autotune.tuner.survey import FoundVllm, Survey

_FLAG_NAMES = {"avx512f": "AVX-512", "avx512_bf16": "bf16", "amx_tile": "AMX", "avx2": "AVX2", "sve": "SVE"}


def print_survey(survey: Survey, *, as_json: bool = False, console: Console | None = None) -> None:
    """Print to standard output, for a person or as JSON."""
    if as_json:
        sys.stdout.write(json.dumps(survey.to_json(), indent=2) + "\n")
        return
    console = console or Console(highlight=False)
    for title, body in (
        ("Host", _host(survey.host)),
        ("GPUs", _gpus(survey)),
        ("vLLM", _installs(survey.installs)),
        ("A run would tune", _choice(survey)),
    ):
        console.print(Text(title, style="bold"))
        console.print(Padding(body, (0, 0, 1, 2)))


def _rows(*rows: tuple[str, RenderableType]) -> Table:
    """Words on the left, what they stand for on the right."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def _host(host: Host) -> Table:
    driver = f"driver {host.driver_version}, CUDA {host.cuda_version}" if host.driver_version else "no driver"
    return _rows(
        ("CPU", Text(f"{host.cpu.model}, {_cores(host.cpu)}{_instructions(host.cpu)}")),
        ("memory", f"{_gib(host.ram_total_bytes)} GiB, {_gib(host.ram_available_bytes)} GiB available"),
        ("system", Text(f"{host.os}, Linux {host.kernel}")),
        ("NVIDIA", driver),
        ("fingerprint", host.fingerprint()),
    )


def _cores(cpu: Cpu) -> str:
    allowed = "" if cpu.usable_cores == cpu.logical_cores else f", {cpu.usable_cores:g} of them usable"
    threads = "" if cpu.logical_cores == cpu.physical_cores else f", {cpu.logical_cores} threads"
    return f"{cpu.physical_cores} cores{threads}{allowed}"


def _instructions(cpu: Cpu) -> str:
    names = [_FLAG_NAMES[flag] for flag in cpu.flags if flag in _FLAG_NAMES]
    return f" ({', '.join(names)})" if names else ""


def _gpus(survey: Survey) -> RenderableType:
    if not survey.host.gpus:
        return Text(f"none: {survey.host.gpu_problem or 'no GPU found'}", style="yellow")
    table = Table.grid(padding=(0, 1, 0, 0))
    for gpu in survey.host.gpus:
        table.add_row(_mark(gpu == survey.device.gpu), Text(f"{gpu.index} "), _gpu(gpu))
    return table


def _gpu(gpu: Gpu) -> Text:
    """Three lines: what it is, its UUID, and who uses it."""
    if gpu.problem:
        return Text(gpu.problem, style="red")
    shared = ["memory shared with the CPU"] if gpu.unified_memory else []
    facts = [f"{_gib(gpu.free_bytes)} of {_gib(gpu.total_bytes)} GiB free", *shared, *_details(gpu)]
    users = _users(gpu)
    return Text.assemble(
        (gpu.name, "bold"),
        f"{' (MIG instance)' if gpu.mig else ''}  {', '.join(facts)}\n",
        (f"{gpu.uuid}\n", "dim"),
        (f"used by {users}", "yellow") if users else ("idle", "green"),
    )


def _details(gpu: Gpu) -> Iterator[str]:
    if gpu.compute_capability:
        yield f"compute capability {'.'.join(map(str, gpu.compute_capability))}"
    if gpu.power_limit_w:
        yield f"{gpu.power_limit_w:.0f} W"
    if gpu.pcie_generation and gpu.pcie_width:
        yield f"PCIe gen{gpu.pcie_generation} x{gpu.pcie_width}"


def _users(gpu: Gpu) -> str:
    return ", ".join(f"{process.name or 'a process'} ({_share(process)})" for process in gpu.processes)


def _share(process: GpuProcess) -> str:
    used = [f"{_gib(process.used_bytes)} GiB"] if process.used_bytes else []
    kind = [] if process.kind == "compute" else [process.kind]
    return ", ".join([f"pid {process.pid}", *used, *kind])


def _installs(installs: tuple[FoundVllm, ...]) -> RenderableType:
    if not installs:
        return Text(f"none: {HOW_TO_INSTALL}", style="yellow")
    parts: list[RenderableType] = [_install_table(installs)]
    for found in installs:
        for problem in (*found.install.problems, *([found.unreadable] if found.unreadable else [])):
            parts.append(Text(f"! {found.install.version} ({found.install.python}): {problem}", style="red"))
    if len(installs) > 1:
        used = installs[0].install
        parts.append(Text(f"{used.version} is used, as it was found first; --vllm-python PATH takes another."))
    return Group(*parts)


def _install_table(installs: tuple[FoundVllm, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for title in ("", "version", "distribution", "flags"):
        table.add_column(title, no_wrap=True)
    table.add_column("Python", overflow="fold")
    for place, found in enumerate(installs):
        install = found.install
        python = Text.assemble(str(install.python), (f"\nfound by {install.found_by}", "dim"))
        cells = (Text(text) for text in (install.version, install.dist_name, str(found.flag_count or "?")))
        table.add_row(_mark(place == 0), *cells, python)
    return table


def _choice(survey: Survey) -> Table:
    device, space = survey.device, survey.space
    gpu = f"GPU {device.gpu.index}, {device.name}" if device.gpu else "the CPU"
    rows: list[tuple[str, RenderableType]] = [("device", Text(f"{gpu}: {device.why}"))]
    if survey.mismatch:
        rows.append(("", Text(f"! {survey.mismatch}", style="red")))
    if space is None:
        return _rows(*rows, ("space", Text(survey.space_problem or "none", style="red")))
    rows.append(("space", Text(space.chosen_because or space.name)))
    rows += [(f"  {scope}", _parameters(space, scope)) for scope in ("boot", "live") if _of(space, scope)]
    if space.dropped:
        rows.append(("  left out", Text(_dropped(space), style="dim")))
    return _rows(*rows)


def _of(space: SearchSpace, scope: str) -> list[Parameter]:
    return [parameter for parameter in space.parameters if parameter.scope == scope]


def _parameters(space: SearchSpace, scope: str) -> Table:
    longest = max(len(parameter.name) for parameter in space.parameters)
    return _rows(*((p.name.ljust(longest), Text(", ".join(map(_value, p.values)))) for p in _of(space, scope)))


def _value(value: FlagValue | None) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "default" if value is None else str(value)


def _dropped(space: SearchSpace) -> str:
    names = list(dict.fromkeys(dropped.parameter for dropped in space.dropped if dropped.value is None))
    values = sum(dropped.value is not None for dropped in space.dropped)
    single = [f"{values} single value{'s' * (values > 1)}"] if values else []
    return f"{', '.join(names + single)} (reasons: --json)"


def _mark(chosen: bool) -> Text:
    return Text("→" if chosen else " ", style="bold green")


def _gib(count: int) -> str:
    return f"{count / GIB:.1f}"
