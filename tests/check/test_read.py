"""Launches in every kind of text: the words that vLLM gets, their lines, variables and images."""

from pathlib import Path

import pytest

from autotune.check.launch import Launch
from autotune.check.manifests import launches_in_yaml
from autotune.check.read import read_launches
from autotune.check.shell import launches_in_shell
from autotune.check.systemd import launches_in_unit
from autotune.errors import UsageError


def words(launch: Launch) -> list[str]:
    return [word.text for word in launch.words]


def only(launches: list[Launch]) -> Launch:
    (launch,) = launches
    return launch


SCRIPT = r"""#!/bin/bash
# vllm serve not-this
MODEL=Qwen/Qwen3-14B
export HF_HOME=/data VLLM_LOGGING_LEVEL=INFO
CUDA_VISIBLE_DEVICES=0 exec vllm serve "$MODEL" \
    --port ${PORT:-8000} --served-model-name 'a b' \
    --hf-overrides '{"a": "b c"}' --download-dir $HOME/models > log.txt 2>&1 &
"""


def test_a_script_with_variables_and_continued_lines() -> None:
    launch = only(launches_in_shell(SCRIPT))
    assert words(launch) == [
        *("Qwen/Qwen3-14B", "--port", "8000", "--served-model-name", "a b"),
        *("--hf-overrides", '{"a": "b c"}', "--download-dir", "$HOME/models"),
    ]
    assert [word.line for word in launch.words[:6:2]] == [5, 6, 6]
    assert not launch.words[-1].whole and launch.words[0].whole
    assert {name: word.text for name, word in launch.env} == {
        "HF_HOME": "/data",
        "VLLM_LOGGING_LEVEL": "INFO",
        "CUDA_VISIBLE_DEVICES": "0",
    }


@pytest.mark.parametrize(
    ("line", "kind", "found"),
    [
        ("nohup numactl -N 0 vllm serve m --port 1 &", "serve", ["m", "--port", "1"]),
        ("uv run vllm serve m; echo done", "serve", ["m"]),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", "module", ["--model", "m"]),
        ("python -m vllm.entrypoints.cli.main serve m", "serve", ["m"]),
        ("/opt/v/bin/vllm serve m && true", "serve", ["m"]),
        ("bash -lc 'cd /x && vllm serve m --port 1'", "serve", ["m", "--port", "1"]),
        ('"${VLLM:-vllm}" serve m "$@"', "serve", ["m", "$@"]),
        ("env A=b vllm serve m", "serve", ["m"]),
        ("vllm serve m # --port 1", "serve", ["m"]),
        ("vllm serve m --host <ip>", "serve", ["m", "--host", "<ip>"]),
        ("docker exec c vllm serve m", "serve", ["m"]),
    ],
)
def test_ways_to_start_vllm(line: str, kind: str, found: list[str]) -> None:
    launch = only(launches_in_shell(line))
    assert (launch.kind, words(launch)) == (kind, found)


@pytest.mark.parametrize("line", ["vllm bench serve --model m", "vllm --version", "echo vllm", "pip install vllm"])
def test_other_commands_start_no_server(line: str) -> None:
    assert launches_in_shell(line) == []


def test_a_gap_is_no_value() -> None:
    launch = only(launches_in_shell("vllm serve m --host <ip> --port 1"))
    assert [word.whole for word in launch.words] == [True, True, False, True, True]


def test_docker_run_with_options_of_all_kinds() -> None:
    launch = only(
        launches_in_shell(
            "sudo docker run -d --rm --gpus '\"device=0\"' -e A=b --env=C=d -p 80:80 -v x:y --ipc=host "
            "vllm/vllm-openai:v0.10.2-x86 --model m --port 1"
        )
    )
    assert (words(launch), launch.kind, launch.image_version) == (["--model", "m", "--port", "1"], "module", "0.10.2")
    assert {name: word.text for name, word in launch.env} == {"A": "b", "C": "d"}


def test_docker_with_another_entry_point() -> None:
    launch = only(launches_in_shell("podman run --entrypoint 'vllm serve' vllm/vllm-openai:v0.24.0 m --port 1"))
    assert (words(launch), launch.kind, launch.image_version) == (["m", "--port", "1"], "serve", "0.24.0")


def test_a_flag_behind_a_broken_line_is_noticed() -> None:
    launch = only(launches_in_shell("vllm serve m \\\n  # about the port\n  --port 1\n"))
    assert words(launch) == ["m"]
    assert launch.cut_off and (launch.cut_off.text, launch.cut_off.line) == ("--port", 3)


COMPOSE = """
services:
  llm:
    image: vllm/vllm-openai:v0.10.2
    environment:
      - HF_TOKEN=${HF_TOKEN}
      - VLLM_USE_V1=1
    command: >
      --model Qwen/Qwen3-14B
      --max-model-len 8192
  web:
    image: nginx
    command: ["nginx"]
  other:
    image: own
    environment: {A: b}
    entrypoint: ["vllm", "serve"]
    command: ["m", "--port", "${PORT:-80}"]
"""


def test_compose() -> None:
    llm, other = launches_in_yaml(COMPOSE)
    assert (llm.name, llm.kind, llm.image_version) == ("llm", "module", "0.10.2")
    assert words(llm) == ["--model", "Qwen/Qwen3-14B", "--max-model-len", "8192"]
    assert [(name, word.whole) for name, word in llm.env] == [("HF_TOKEN", False), ("VLLM_USE_V1", True)]
    assert (other.name, words(other), dict(other.env)["A"].text) == ("other", ["m", "--port", "80"], "b")
    assert other.words[0].line == 18


KUBERNETES = """
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  spec:
    template:
      spec:
        containers:
        - name: one
          image: vllm/vllm-openai:v0.24.0
          env:
          - name: MODEL
            value: Qwen/Q
          - name: KEY
            valueFrom: {secretKeyRef: {name: a, key: b}}
          args: ["--model=$(MODEL)", "--api-key", "$(KEY)"]
        - name: two
          image: own
          env: [{name: MODEL, value: m}]
          command: ["/bin/sh", "-c"]
          args:
          - |
            echo hi
            exec vllm serve $MODEL \\
              --enforce-eager
"""


def test_kubernetes() -> None:
    one, two = launches_in_yaml(KUBERNETES)
    assert words(one) == ["--model=Qwen/Q", "--api-key", "${KEY}"]
    assert not one.words[-1].whole
    assert (two.name, words(two)) == ("two", ["m", "--enforce-eager"])
    assert two.words[-1].line == 27


def test_vllms_own_configuration() -> None:
    launch = only(
        launches_in_yaml(
            "model: m\nmax-model-len: 128k\nenable-prefix-caching: false\nenforce-eager: true\n"
            "served-model-name: [a, b]\ncompilation-config:\n  mode: 3\n"
        )
    )
    assert launch.kind == "config"
    assert words(launch) == [
        *("--model", "m", "--max-model-len", "128k", "--enable-prefix-caching=false", "--enforce-eager"),
        *("--served-model-name", "a", "b", "--compilation-config", '{"mode": 3}'),
    ]
    assert launch.words[-1].line == 6


def test_a_command_in_somebody_elses_yaml() -> None:
    launch = only(launches_in_yaml('server:\n  start: sh -c "sleep 1 && vllm serve m --port 1"\n  port: 8000\n'))
    assert (words(launch), launch.line) == (["m", "--port", "1"], 2)
    assert launches_in_yaml("on: push\njobs: {a: b}\n") == []


UNIT = r"""[Unit]
Description=x
[Service]
Environment=MODEL=a/b "OTHER=c d"
ExecStart=-/usr/bin/vllm serve ${MODEL} \
  # a note
  --port 8000 \
  --served-model-name %i
"""


def test_a_systemd_unit() -> None:
    launch = only(launches_in_unit(UNIT))
    assert words(launch) == ["a/b", "--port", "8000", "--served-model-name", "%i"]
    assert [(word.line, word.whole) for word in launch.words] == [
        (5, True),
        (7, True),
        (7, True),
        (8, True),
        (8, False),
    ]
    assert dict(launch.env)["OTHER"].text == "c d"


def test_files_that_a_script_writes_are_read_with_it(tmp_path: Path) -> None:
    script = tmp_path / "setup.sh"
    script.write_text(f"#!/bin/sh\ncat > /etc/x.service <<'EOF'\n{UNIT}EOF\nvllm serve last\n")
    name, (unit, last) = read_launches(str(script))
    assert name == str(script)
    assert (words(unit)[0], unit.line) == ("a/b", 7)
    assert (words(last), last.line) == (["last"], 12)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.yaml", "a: [1\n"), ("a.yaml", "on: push\n"), ("a.sh", "echo hi\n"), ("a.service", "[Unit]\nDescription=x\n")],
)
def test_files_that_start_nothing(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=r"starts no vLLM server|cannot be read"):
        read_launches(str(tmp_path / name))


@pytest.mark.parametrize("target", ["no-such-file.sh", "ls -la", "-"])
def test_targets_that_are_nothing(target: str) -> None:
    with pytest.raises(UsageError, match=r"no such file|starts no vLLM server"):
        read_launches(target, stdin="")


def test_binary_and_huge_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b.sh").write_text("#" * (5 << 20))
    for name in ("a.bin", "b.sh"):
        with pytest.raises(UsageError):
            read_launches(str(tmp_path / name))


def test_standard_input() -> None:
    name, launches = read_launches("-", stdin="vllm serve m\n")
    assert (name, words(only(launches))) == ("-", ["m"])


@pytest.mark.parametrize(
    ("options", "gpus"),
    [("--gpus all", None), ("--gpus 2", 2), ("--gpus '\"device=0,3\"'", 2), ("--gpus=device=1", 1), ("", None)],
)
def test_how_many_gpus_docker_gives(options: str, gpus: int | None) -> None:
    assert only(launches_in_shell(f"docker run {options} vllm/vllm-openai:v0.32.0 --model m")).gpus == gpus


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("apiVersion: v1\nspec: {resources: {limits: {nvidia.com/gpu: '4'}}, image: vllm, args: [m]}", 4),
        ("services: {a: {image: vllm, command: m, deploy: {resources: {reservations: {devices: [{count: 2}]}}}}}", 2),
        (
            "services: {a: {image: vllm, command: m, deploy: {resources: {reservations: "
            "{devices: [{device_ids: ['0', '1', '2']}]}}}}}",
            3,
        ),
        (
            "services: {a: {image: vllm, command: m, deploy: {resources: {reservations: {devices: [{count: all}]}}}}}",
            None,
        ),
    ],
)
def test_how_many_gpus_a_manifest_gives(text: str, gpus: int | None) -> None:
    assert only(launches_in_yaml(text)).gpus == gpus
