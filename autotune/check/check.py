"""Runs every rule over every launch of a target."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from autotune.check.arguments import read_arguments
from autotune.check.case import Case, Finding
from autotune.check.launch import Launch
from autotune.check.models import find_model
from autotune.check.read import read_launches
from autotune.check.rules import RULES
from autotune.check.rules.environment import secret_texts
from autotune.engine.flags import FlagTable, load_flags
from autotune.engine.install import VllmInstall, resolve_install
from autotune.engine.releases import Releases, load_releases
from autotune.engine.vocabulary import Vocabulary, read_vocabulary
from autotune.errors import UsageError
from autotune.space.facts import DeviceFacts

INSTALLED = "installed"


@dataclass(frozen=True, slots=True)
class Vllm:
    """The version that a launch is judged for, and how it was chosen."""

    table: FlagTable
    vocabulary: Vocabulary
    why: str


@dataclass(frozen=True, slots=True)
class Checked:
    """One launch and its findings. ``unknown`` says what could not be judged, and why."""

    launch: Launch
    vllm: str
    vllm_why: str
    model: str
    findings: tuple[Finding, ...]
    unknown: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing but advice was found."""
        return all(finding.level == "advice" for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Report:
    """All launches of a target. ``file`` is None for a command line."""

    file: str | None
    device: DeviceFacts | None
    launches: tuple[Checked, ...]

    @property
    def clean(self) -> bool:
        return all(checked.clean for checked in self.launches)

    def to_json(self) -> dict[str, Any]:
        """Plain values. No text of the launch itself is in it, since it may hold secrets."""
        return {
            "file": self.file,
            "gpu": asdict(self.device) if self.device else None,
            "clean": self.clean,
            "launches": [
                {
                    "line": checked.launch.line,
                    "name": checked.launch.name or None,
                    "kind": checked.launch.kind,
                    "vllm": checked.vllm,
                    "vllm_chosen": checked.vllm_why,
                    "model": checked.model or None,
                    "not_judged": list(checked.unknown),
                    "findings": [asdict(finding) for finding in checked.findings],
                }
                for checked in self.launches
            ],
        }


@dataclass(frozen=True)
class Versions:
    """Finds the vLLM for a launch: the one asked for, that of its image, or the installed one."""

    wanted: str
    python: Path | None
    releases: Releases

    def choose(self, launch: Launch) -> Vllm:
        """Raises ``UsageError`` where none is installed and none is named."""
        if self.wanted != INSTALLED:
            return self._published(self.wanted, "asked for")
        if launch.image_version:
            return self._published(launch.image_version, "the image's tag")
        try:
            install = resolve_install(self.python)
        except UsageError as error:
            if self.python:
                raise
            newest = self.releases.versions[-1]
            raise UsageError(
                f"No vLLM is installed here: name the version to check for, such as --vllm {newest}."
            ) from error
        return _installed(install)

    def _published(self, wanted: str, why: str) -> Vllm:
        version = self.releases.nearest(wanted)
        same = version == wanted.removeprefix("v") or wanted.count(".") < 2
        note = why if same else f"{why}: {wanted}, judged by {version}, the nearest that is known"
        return Vllm(self.releases.table(version), self.releases.vocabulary(version), note)


def check_target(
    target: str,
    *,
    vllm: str = INSTALLED,
    device: DeviceFacts | None = None,
    model_config: Path | None = None,
    python: Path | None = None,
    stdin: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Report:
    """Judge every launch of ``target`` (a command line, a file, or ``-``).

    Raises ``UsageError`` where the target starts no vLLM, a version is not known or a file cannot be used.
    """
    file, launches = read_launches(target, stdin)
    versions = Versions(vllm, python, load_releases())
    checked = (check_launch(launch, versions, device, model_config, environ) for launch in launches)
    return Report(file, device, tuple(checked))


def check_launch(
    launch: Launch,
    versions: Versions,
    device: DeviceFacts | None = None,
    model_config: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Checked:
    """Judge one launch."""
    chosen = versions.choose(launch)
    # A flag that is gone still takes its value with it.
    options = {word.text.split("=")[0].replace("_", "-") for word in launch.words}
    arguments = read_arguments(launch, chosen.table, versions.releases.ever(options))
    name = arguments.model.text if arguments.model and arguments.model.whole else ""
    model = find_model(name or "the model", model_config, environ) if name or model_config else None
    case = Case(launch, arguments, chosen.table, chosen.vocabulary, versions.releases, device, model)
    secrets = secret_texts(case)
    findings = [_without(secrets, finding) for rule in RULES for finding in rule(case)]
    order = {"error": 0, "warning": 1, "advice": 2}
    findings.sort(key=lambda finding: (order[finding.level], finding.line))
    unknown = tuple(_not_judged(case, name))
    return Checked(launch, chosen.table.version, chosen.why, name, tuple(findings), unknown)


def _without(secrets: set[str], finding: Finding) -> Finding:
    """The finding with every secret blotted out."""
    for secret in secrets:
        texts = {name: getattr(finding, name).replace(secret, "***") for name in ("what", "why", "instead")}
        finding = replace(finding, **texts)
    return finding


def _installed(install: VllmInstall) -> Vllm:
    return Vllm(load_flags(install), read_vocabulary(install.package_dir), f"installed ({install.python})")


def _not_judged(case: Case, name: str) -> list[str]:
    found = []
    if case.device is None:
        found.append("the GPU is not known: memory and GPU support were not judged (--gpu NAME)")
    if case.model is None:
        found.append(
            "the model is not known before the command runs: nothing about it was judged (--model-config FILE)"
        )
    elif not case.model.config:
        found.append(f"the shape of {name} is not known here: context and memory were not judged (--model-config FILE)")
    elif case.model.shape is None:
        found.append(f"the config.json of {name} does not tell its size: memory was not judged")
    return found
