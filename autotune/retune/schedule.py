"""Writes what starts the nightly re-tune: a systemd timer, a crontab line, or a Kubernetes CronJob.

All three start the same command, ``autotune retune STUDY --nightly WINDOW``, with absolute paths and every choice
spelled out, so that it does not depend on a shell, a working folder or a PATH. The window, the lock, the busy GPU, the
log and the notification are the command's own business (``nightly``); the launcher's limits only stand behind them.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.export.files import write_atomic
from autotune.export.systemd import word
from autotune.export.yaml_text import yaml_text
from autotune.retune.nightly import PATH, Window

KINDS = ("systemd", "cron", "kubernetes")
# Behind the command's own end, which comes first.
SPARE_S = 120
GOOD_CODES = (10, 20, 30)
STUDIES_MOUNT = "/studies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to run every night. ``arguments`` follow ``retune STUDY --nightly WINDOW``; ``study`` is absolute."""

    name: str
    study: str
    window: Window
    arguments: tuple[str, ...] = ()
    python: str = sys.executable

    def command(self, python: str | None = None, study: str | None = None) -> list[str]:
        """The exact command line."""
        words = [python or self.python, "-m", "autotune", "retune", study or self.study]
        return [*words, "--nightly", str(self.window), *self.arguments]


def systemd_units(job: Job) -> dict[str, str]:
    """File name → text of the service and its timer."""
    return {f"{job.name}.service": _service(job), f"{job.name}.timer": _timer(job)}


def cron_line(job: Job) -> str:
    """One line; cron takes ``%`` for a line break unless it is escaped."""
    command = shlex.join(job.command()).replace("%", r"\%")
    if "\n" in command:
        raise UsageError("a crontab line cannot hold a line break. Put the notification into a script.")
    return f"{job.window.start.minute} {job.window.start.hour} * * * {command}"


def cron_job(job: Job, image: str | None, gpus: int) -> str:
    """The CronJob's YAML. Raises ``UsageError`` without an image, for there is none that fits all."""
    if image is None:
        raise UsageError("a CronJob needs --image: one that holds both autotune and the vLLM to be compared.")
    head = [
        f"# Nightly re-tune of {job.study}: kubectl apply -f FILE",
        f"# The volume claim autotune-studies holds the study's folder as {Path(job.study).name}. Times are the",
        "# container's own, UTC unless the image says otherwise. To read: kubectl logs job/NAME.",
    ]
    return yaml_text(head, _cron_job(job, image, gpus))


def install_systemd(job: Job, run: "Runner") -> list[str]:
    """Write the units where systemd looks for this user's, and enable the timer. Raises ``UsageError``."""
    import os

    root = os.geteuid() == 0
    folder = Path("/etc/systemd/system") if root else Path.home() / ".config/systemd/user"
    control = ["systemctl"] if root else ["systemctl", "--user"]
    for name, text in systemd_units(job).items():
        write_atomic(folder / name, text)
    run([*control, "daemon-reload"])
    run([*control, "enable", "--now", f"{job.name}.timer"])
    note = [] if root else ["Without a login it runs only after: loginctl enable-linger"]
    return [f"Enabled {job.name}.timer in {folder}.", *note]


def install_cron(job: Job, run: "Runner") -> list[str]:
    """Put the line into this user's crontab in place of an earlier one of the same job. Raises ``UsageError``."""
    mark = f"# {job.name}"
    before = run(["crontab", "-l"], may_fail=True).splitlines()
    kept: list[str] = []
    skip = False
    for line in before:
        skip, drop = line == mark, skip or line == mark
        if not drop:
            kept.append(line)
    run(["crontab", "-"], text="\n".join([*kept, mark, cron_line(job), ""]))
    return [f"Put {job.name} into the crontab."]


class Runner:
    """Runs one command of the system. Raises ``UsageError`` with its last line where it fails."""

    def __call__(self, words: Sequence[str], text: str | None = None, may_fail: bool = False) -> str:
        """What the command printed."""
        if shutil.which(words[0]) is None:
            raise UsageError(f"there is no {words[0]} on this machine, so nothing was enabled.")
        done = subprocess.run(list(words), input=text, capture_output=True, text=True, check=False)
        if done.returncode and not may_fail:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UsageError(f"{shlex.join(words)} failed: {last}")
        return done.stdout if done.returncode == 0 else ""


def _service(job: Job) -> str:
    words = " ".join(word(text) for text in job.command())
    return f"""\
# Nightly re-tune of {job.study}, started by {job.name}.timer.
# To read: journalctl -u {job.name}, and the study's retune/logs/nightly.log and retune/last.json.
[Unit]
Description=Nightly re-tune of vLLM ({job.name})

[Service]
Type=oneshot
ExecStart={words}
Environment=PATH={PATH}
# 10: a configuration was exported, 20: hold, 30: could not decide or skipped.
SuccessExitStatus={" ".join(map(str, GOOD_CODES))}
# The command keeps to its window by itself; this ends it, engines included, should it ever not.
TimeoutStartSec={job.window.length_s + SPARE_S:.0f}
KillMode=control-group
NoNewPrivileges=yes
"""


def _timer(job: Job) -> str:
    return f"""\
[Unit]
Description=Starts the nightly re-tune of vLLM ({job.name})

[Timer]
OnCalendar=*-*-* {job.window.start:%H:%M}:00
AccuracySec=1min
# A night that was missed is not made up for: the window would be over.
Persistent=false

[Install]
WantedBy=timers.target
"""


def _cron_job(job: Job, image: str, gpus: int) -> dict[str, Any]:
    command = shlex.join(job.command("python3", f"{STUDIES_MOUNT}/{Path(job.study).name}"))
    good = "|".join(str(code) for code in (0, *GOOD_CODES))
    container = {
        "name": "retune",
        "image": image,
        "command": ["sh", "-c", f"{command}; code=$?; case $code in {good}) exit 0;; esac; exit $code"],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "studies", "mountPath": STUDIES_MOUNT}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    pod = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [
            {"name": "studies", "persistentVolumeClaim": {"claimName": "autotune-studies"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": job.name, "labels": {"app.kubernetes.io/managed-by": "vllm-autotune"}},
        "spec": {
            "schedule": f"{job.window.start.minute} {job.window.start.hour} * * *",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 600,
            "successfulJobsHistoryLimit": 7,
            "failedJobsHistoryLimit": 7,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 0,
                    "activeDeadlineSeconds": int(job.window.length_s) + SPARE_S,
                    "template": {"spec": pod},
                }
            },
        },
    }
