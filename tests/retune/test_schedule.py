"""What is scheduled: valid for its launcher, exactly one command, and alone, inside its window, on a free GPU."""

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from fake_vllm import make_fake_python, set_behaviour
from retune_studies import recommendation, with_best, write_study

from autotune.errors import UsageError
from autotune.export.study import ADOPTED
from autotune.retune import nightly as night_module
from autotune.retune.nightly import KEPT_LOGS, LOG_BYTES, Window, nightly
from autotune.retune.plans import RetuneSettings
from autotune.retune.report import Report
from autotune.retune.schedule import Job, cron_job, cron_line, install_cron, install_systemd, systemd_units

ROOT = Path(__file__).parents[2]
JOB = Job(
    name="autotune-retune-s",
    study="/srv/studies/o'brien's 100% study",
    window=Window.parse("02:30-05:00"),
    arguments=("--notify", 'mail -s "$AUTOTUNE_VERDICT 50%" ops < /dev/null', "--gpu", "0"),
    python="/opt/autotune/bin/python",
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("text", "now", "left_h"),
    [
        ("02:00-05:00", "02:00", 3.0),
        ("02:00-05:00", "04:30", 0.5),
        ("02:00-05:00", "05:00", 0.0),
        ("02:00-05:00", "01:59", 0.0),
        ("23:00-02:00", "23:30", 2.5),
        ("23:00-02:00", "01:00", 1.0),
        ("23:00-02:00", "12:00", 0.0),
    ],
)
def test_a_window_knows_what_is_left_of_it(text: str, now: str, left_h: float) -> None:
    assert Window.parse(text).left_s(datetime.strptime(now, "%H:%M")) == left_h * 3600


@pytest.mark.parametrize("text", ["2-5", "25:00-26:00", "02:00-02:00", "night", "02:00"])
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="02:00-05:00"):
        Window.parse(text)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    job = Job(name=JOB.name, study=JOB.study, window=JOB.window, arguments=JOB.arguments, python=sys.executable)
    for name, text in systemd_units(job).items():
        (tmp_path / name).write_text(text)
    units = [str(tmp_path / name) for name in systemd_units(job)]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr


def test_a_shell_reads_the_crontab_line_as_the_very_command() -> None:
    minute, hour, *days, command = cron_line(JOB).split(" ", 5)
    assert (minute, hour, days) == ("30", "2", ["*", "*", "*"])
    assert "%" not in command.replace(r"\%", "")
    assert shlex.split(command.replace(r"\%", "%")) == JOB.command()


def test_the_cron_job_is_valid_and_its_good_codes_are_no_failures() -> None:
    document = yaml.safe_load(cron_job(JOB, "registry/autotune:1", 1))
    for version in ("1.28", "1.32", "1.37"):
        kubernetes_validate.validate(document, version, strict=True)
    spec = document["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("30 2 * * *", "Forbid")
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert pod["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    script = pod["command"][2]
    for code, wanted in ((0, 0), (10, 0), (20, 0), (30, 0), (2, 2), (1, 1)):
        command = script.replace(script.partition("; code=")[0], f"sh -c 'exit {code}'")
        assert subprocess.run(["sh", "-c", command], check=False).returncode == wanted
    with pytest.raises(UsageError, match="--image"):
        cron_job(JOB, None, 1)


class Recorder:
    """Stands for the system's commands."""

    def __init__(self, crontab: str = "") -> None:
        self.crontab = crontab
        self.ran: list[list[str]] = []

    def __call__(self, words: Sequence[str], text: str | None = None, may_fail: bool = False) -> str:
        self.ran.append(list(words))
        if text is not None:
            self.crontab = text
        return self.crontab


def test_installing_a_crontab_line_twice_leaves_one_and_every_other_line() -> None:
    run = Recorder("MAILTO=ops\n0 1 * * * backup\n")
    install_cron(JOB, run)
    install_cron(JOB, run)
    lines = run.crontab.splitlines()
    assert lines[:2] == ["MAILTO=ops", "0 1 * * * backup"] and lines[2:] == [f"# {JOB.name}", cron_line(JOB)]


def test_installing_a_timer_writes_both_units_and_enables_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    run = Recorder()
    install_systemd(JOB, run)
    folder = tmp_path / ".config/systemd/user"
    assert sorted(path.name for path in folder.iterdir()) == [f"{JOB.name}.service", f"{JOB.name}.timer"]
    assert run.ran == [
        ["systemctl", "--user", "daemon-reload"],
        ["systemctl", "--user", "enable", "--now", f"{JOB.name}.timer"],
    ]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path / "study", recommendation(tmp_path), None)


def around_now(hours: float = 2) -> Window:
    now = datetime.now()
    return Window((now - timedelta(hours=1)).time(), (now + timedelta(hours=hours)).time())


def test_outside_its_window_a_night_is_skipped_and_says_so(study: Path) -> None:
    window = Window.parse("02:00-05:00")
    found = nightly(RetuneSettings(study=str(study), gpu="cpu"), window, now=datetime(2026, 1, 2, 12, 0))
    assert (found.verdict, found.exit_code) == ("skipped", 30)
    assert "12:00" in found.reasons[0] and "02:00-05:00" in (study / "retune/logs/nightly.log").read_text()
    assert json.loads((study / "retune/last.json").read_text())["verdict"] == "skipped"


def test_two_nights_at_once_are_one(study: Path, tmp_path: Path) -> None:
    lock = tmp_path / "cache/vllm-autotune/nightly.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = nightly(RetuneSettings(study=str(study), gpu="cpu"), around_now())
    assert found.verdict == "skipped" and "another nightly run" in found.reasons[0]


def test_a_gpu_in_use_is_left_alone(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night_module, "_busy", lambda gpu: "GPU 0 is also used by python (pid 7)")
    found = nightly(RetuneSettings(study=str(study), gpu="cpu"), around_now())
    assert found.verdict == "skipped" and "pid 7" in found.reasons[0]


def test_the_time_is_never_more_than_the_window_has_left(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def retune(settings: RetuneSettings) -> Report:
        given.append(settings.budget_s)
        return Report(verdict="hold", study="s", started_at="now", reasons=("slower",))

    monkeypatch.setattr(night_module, "retune", retune)
    told = study / "told"
    command = f'echo "$AUTOTUNE_VERDICT $AUTOTUNE_REPORT" > {shlex.quote(str(told))}'
    now = datetime(2026, 1, 2, 4, 30)
    nightly(RetuneSettings(study=str(study), gpu="cpu", budget_s=7200), Window.parse("02:00-05:00"), command, now)
    assert len(given) == 1 and 1780 < given[0] <= 1800
    assert told.read_text() == f"hold {study}/retune/last.json\n"


def test_a_notification_that_fails_is_said_and_changes_nothing(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report(verdict="hold", study="s", started_at="now")
    monkeypatch.setattr(night_module, "retune", lambda settings: report)
    assert nightly(RetuneSettings(study=str(study), gpu="cpu"), around_now(), "exit 7").exit_code == 20


def test_a_full_log_is_put_aside_and_old_ones_go(study: Path) -> None:
    logs = study / "retune/logs"
    logs.mkdir(parents=True)
    for _ in range(KEPT_LOGS + 3):
        (logs / "nightly.log").write_text("x" * (LOG_BYTES + 1))
        nightly(RetuneSettings(study=str(study), gpu="cpu"), Window.parse("02:00-05:00"), now=datetime(2026, 1, 2, 12))
    assert len(list(logs.iterdir())) == KEPT_LOGS + 1
    assert (logs / "nightly.log").stat().st_size < LOG_BYTES


def test_the_scheduled_command_works_in_an_empty_environment(tmp_path: Path) -> None:
    python = make_fake_python(tmp_path / "venv")
    set_behaviour(python, {})
    found = with_best(recommendation(tmp_path, version="0.32.0"), 1.0)
    study = write_study(tmp_path / "study", found, python)
    words = ["schedule", str(study), "--kind", "cron", "--window", str(around_now()), "--new-python", str(python)]
    words += ["--gpu", "cpu", "--out", str(tmp_path), "--notify", f"touch {tmp_path}/told"]
    more = [f"--retune-arg={word}" for word in ("--window", "1s", "--budget", "60s")]
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *words, *more], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    line = next(tmp_path.glob("*.cron")).read_text().splitlines()[1]
    command = line.split(" ", 5)[5].replace(r"\%", "%")
    home = f"HOME={tmp_path}"
    ran = subprocess.run(
        ["env", "-i", home, "sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    last = json.loads((study / "retune/last.json").read_text())
    assert ran.returncode == last["exit_code"] == 30 and last["verdict"] == "undecided", ran.stderr
    assert last["values"]["incumbent on new"] > 1 and not (study / ADOPTED).exists()
    assert "UNDECIDED" in ran.stdout and "UNDECIDED" in (study / "retune/logs/nightly.log").read_text()
