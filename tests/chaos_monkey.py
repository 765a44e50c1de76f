"""Kills tuners, warm servers, API servers and engine processes at random moments of a study, and counts what it did.

Each cycle starts ``autotune run`` on the same study, lets it work for a random while, sends SIGKILL to a victim, and
looks at the machine and at the database with its own eyes (psutil, sqlite3), not with the code under test:

    orphans         engine processes of ours that outlive the next tuner's first boot, or a tuner that stopped cleanly
    foreign         bystanders that got any signal, or died: a healthy server, a process titled VLLM::EngineCore, one
                    that carries another study's marks
    lost points     points that were reported or stored before a kill and are not stored, unchanged, after it
    not resumable   tuners that ended by themselves with an error
    damaged         databases that fail SQLite's integrity check

Ours is what carries the harness's own mark in its environment, or shares a session with something that did.
"""

import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from chaos_bystanders import Seen, bystanders

MARK = "CHAOS_MARK"
ENGINE_MARK = "AUTOTUNE_ENGINE"
WARM_MARK = "warm-server"
VICTIMS = ("tuner", "tuner", "api server", "engine core", "warm server")
REPORTED = re.compile(r"^\[[^\]]*\]\s+(?:trial|race) \d+ .*tok/s", re.MULTILINE)
GONE_LIMIT_S, ENGINE_LIMIT_S = 30.0, 180.0
# So many lives end just after a point was stored, the moment at which most could be lost; it is waited for this many
# times the longest other life, but at least so many seconds.
POINT_SHARE, POINT_LIMIT, POINT_LEAST_S = 0.4, 2.5, 30.0
Point = tuple[int, float, str, str]
SPACE = """
schema: 1
name: chaos
extends: cpu
parameters:
  max-num-seqs: {values: [4, 8, 16, 32, default], scope: live, ordered: true, why: "limits the batch"}
"""


@dataclass
class Counts:
    """What went wrong, by kind, and what was killed, by victim."""

    cycles: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    orphans: int = 0
    foreign_touched: int = 0
    points: int = 0
    points_lost: int = 0
    not_resumable: int = 0
    databases_damaged: int = 0
    unclean_stops: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        bad = (self.orphans, self.foreign_touched, self.points_lost, self.not_resumable, self.databases_damaged)
        return not any((*bad, self.unclean_stops))

    def __str__(self) -> str:
        kills = ", ".join(f"{name} {count}" for name, count in sorted(self.killed.items()))
        lines = [
            f"cycles              {self.cycles} (killed: {kills})",
            f"orphans             {self.orphans}",
            f"foreign touched     {self.foreign_touched}",
            f"points lost         {self.points_lost} of {self.points}",
            f"not resumable       {self.not_resumable}",
            f"databases damaged   {self.databases_damaged}",
            f"unclean stops       {self.unclean_stops}",
        ]
        return "\n".join([*lines, *self.notes])


# The alternative is so poor that the default wins without a race.
NO_RACE = """
schema: 1
name: no-race
parameters:
  max-num-seqs: {values: [1, default], ordered: true, why: "one request at a time"}
seeds:
  - {name: poor, flags: {max-num-seqs: 1}, why: "one request at a time"}
"""


def study_command(folder: Path, python: Path, study: str, *more: str, space: str = SPACE) -> list[str]:
    """``autotune run`` on one study that goes on for as long as it is let."""
    (folder / "space.yaml").write_text(space)
    words = [
        "run",
        "--gpu",
        "cpu",
        "--concurrency",
        "4",
        "--space",
        "space.yaml",
        "--out",
        "out",
        "--window",
        "0.5s",
        "--study",
        study,
    ]
    return [sys.executable, "-m", "autotune", *words, "--vllm-python", str(python), "--budget", "4h", *more]


class Chaos:
    """One study under attack. ``command`` starts or resumes the tuner; ``longest_s`` bounds the random wait."""

    def __init__(
        self, folder: Path, command: Sequence[str], *, longest_s: float, seed: int = 0, out: str = "out"
    ) -> None:
        self.folder = folder
        self.command = list(command)
        self.longest_s = longest_s
        self.random = random.Random(seed)
        self.database = folder / out / "study.db"
        self.counts = Counts()
        self.leftovers: set[Seen] = set()
        self.left_ids: set[str] = set()
        self.sessions: set[int] = set()
        self.known: dict[int, str] = {}
        self.lives = 0

    def run(self, cycles: int) -> Counts:
        """All cycles, then one clean end."""
        with bystanders(self.folder) as watch:
            try:
                for _ in range(cycles):
                    self.cycle()
                self.check_leftovers_gone_after_clean_stop()
                self.counts.foreign_touched += watch()
            finally:
                self.kill_ours()
        self.counts.points = len(self.known)
        return self.counts

    def cycle(self) -> None:
        """One tuner's life and its violent end."""
        tuner, output = self.start()
        victim = self.random.choice(VICTIMS)
        if self.random.random() < POINT_SHARE:
            stored = len(self.stored_points())
            limit_s = max(POINT_LEAST_S, POINT_LIMIT * self.longest_s)
            self.live(tuner, output, limit_s, until=lambda: len(self.stored_points()) > stored)
            self.live(tuner, output, self.random.uniform(0.0, 0.3))
        else:
            self.live(tuner, output, self.random.uniform(0.2, self.longest_s))
        if victim != "tuner":
            self.live(tuner, output, ENGINE_LIMIT_S, until=lambda: self.find(victim) is not None)
        killed = self.strike(tuner, victim) if tuner.poll() is None else "nobody"
        self.counts.killed[killed] += 1
        if tuner.poll() is None and killed != "tuner":
            self.live(tuner, output, self.random.uniform(0.5, self.longest_s / 2))
            if self.random.random() < 0.5:
                self.stop_cleanly(tuner)
        self.end(tuner, output)
        self.counts.cycles += 1

    def start(self) -> tuple["subprocess.Popen[bytes]", Path]:
        """Start a tuner; its output goes to a file of its own."""
        self.lives += 1
        output = self.folder / f"life-{self.lives}.txt"
        env = {**os.environ, MARK: str(self.folder)}
        with output.open("wb") as file:
            tuner = subprocess.Popen(self.command, cwd=self.folder, env=env, stdout=file, stderr=file)
        return tuner, output

    def live(
        self,
        tuner: "subprocess.Popen[bytes]",
        output: Path,
        seconds: float,
        *,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Let the tuner work, and see to it that what earlier lives left is gone once it has an engine."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or self.must_still_reap(tuner):
            if until():
                return
            if tuner.poll() is not None:
                self.note_end(tuner, output)
                return
            if self.leftovers and self.has_new_engine():
                self.judge_leftovers("after the next tuner's boot began")
            time.sleep(0.05)

    def must_still_reap(self, tuner: "subprocess.Popen[bytes]") -> bool:
        """One life in three must come as far as an engine, so that leftovers get their chance to be found."""
        return bool(self.leftovers) and self.lives % 3 == 0 and tuner.poll() is None

    def note_end(self, tuner: "subprocess.Popen[bytes]", output: Path) -> None:
        """The tuner ended by itself: fine when it is done or was stopped."""
        if tuner.returncode not in (0, 130, -signal.SIGKILL):
            self.counts.not_resumable += 1
            tail = output.read_text(errors="replace").strip().splitlines()[-3:]
            self.counts.notes.append(f"life {self.lives} ended with {tuner.returncode}: {' | '.join(tail)}")

    def strike(self, tuner: "subprocess.Popen[bytes]", victim: str) -> str:
        """SIGKILL to the victim, or to the tuner where there is none; returns who it was."""
        if victim != "tuner" and (pid := self.find(victim)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return victim
        tuner.kill()
        return "tuner"

    def find(self, victim: str) -> int | None:
        """The pid of a current API server, engine process or warm server."""
        for seen in sorted(self.processes() - self.leftovers, key=lambda s: s.pid):
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if victim == _role(seen):
                    return seen.pid
        return None

    def stop_cleanly(self, tuner: "subprocess.Popen[bytes]") -> None:
        """Ctrl-C: the tuner ends within bounded time and leaves nothing."""
        if tuner.poll() is not None:
            return
        tuner.send_signal(signal.SIGINT)
        try:
            tuner.wait(GONE_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.counts.unclean_stops += 1
            self.counts.notes.append(f"life {self.lives} did not end within {GONE_LIMIT_S:.0f} s of Ctrl-C")
            return
        mine = self.processes() - self.leftovers
        if not self.wait_gone(mine):
            self.counts.orphans += sum(seen.alive for seen in mine)
            self.counts.notes.append(f"life {self.lives} left {self.describe(mine)} after Ctrl-C")

    def end(self, tuner: "subprocess.Popen[bytes]", output: Path) -> None:
        """Whatever still runs of this life is its successor's to clean up; the database must be whole."""
        if tuner.poll() is None:
            tuner.kill()
        tuner.wait()
        self.leftovers |= self.processes()
        self.left_ids |= {_engine_id(seen) for seen in self.processes(warm=False)}
        self.check_points(len(REPORTED.findall(output.read_text(errors="replace"))))

    def processes(self, *, warm: bool = True) -> set[Seen]:
        """What tuners of ours started and runs now, by mark or by session; with or without warm servers."""
        found = set()
        live_sessions = set()
        for process in psutil.process_iter(["pid", "create_time", "status"]):
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                environ = _environ(process)
                session = os.getsid(process.pid)
                marked = environ.get(MARK) == str(self.folder) and ENGINE_MARK in environ
                if process.info["status"] == psutil.STATUS_ZOMBIE or not (marked or session in self.sessions):
                    continue
                live_sessions.add(session)
                if warm or not environ.get(ENGINE_MARK, "").startswith(WARM_MARK):
                    found.add(Seen(process.pid, process.info["create_time"]))
        # A session that has ended is forgotten: its number may be given to strangers.
        self.sessions = live_sessions
        return found

    def has_new_engine(self) -> bool:
        """Whether the tuner that lives now has started an engine; one left behind may start processes still."""
        ids = {_engine_id(seen) for seen in self.processes(warm=False) - self.leftovers}
        return bool(ids - {""} - self.left_ids)

    def judge_leftovers(self, when: str) -> None:
        """Count those that are still there, and what they started meanwhile."""
        self.leftovers |= {seen for seen in self.processes(warm=False) if _engine_id(seen) in self.left_ids - {""}}
        if not self.wait_gone(self.leftovers, 2.0):
            self.counts.orphans += sum(seen.alive for seen in self.leftovers)
            self.counts.notes.append(f"life {self.lives}: {self.describe(self.leftovers)} still there {when}")
            self.kill_ours(self.leftovers)
        self.leftovers = set()

    def kill_ours(self, among: set[Seen] | None = None) -> None:
        """End what carries this harness's own mark, tuners included, so that nothing outlives the test."""
        for process in psutil.process_iter(["pid", "create_time"]):
            with contextlib.suppress(psutil.Error):
                seen = Seen(process.pid, process.info["create_time"])
                if _environ(process).get(MARK) == str(self.folder) and (among is None or seen in among):
                    process.kill()

    def check_leftovers_gone_after_clean_stop(self) -> None:
        """The last life comes to an engine and is stopped by Ctrl-C: nothing at all may be left."""
        tuner, output = self.start()
        end = time.monotonic() + ENGINE_LIMIT_S
        while tuner.poll() is None and not self.has_new_engine() and time.monotonic() < end:
            time.sleep(0.05)
        self.judge_leftovers("after the last tuner's boot began")
        self.stop_cleanly(tuner)
        self.note_end(tuner, output)
        self.end(tuner, output)
        self.judge_leftovers("at the end")

    @staticmethod
    def wait_gone(group: set[Seen], limit_s: float = GONE_LIMIT_S) -> bool:
        """Whether all of the group end in time."""
        end = time.monotonic() + limit_s
        while any(seen.alive for seen in group):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    @staticmethod
    def describe(group: set[Seen]) -> str:
        """Pids, command lines and marks of those that run."""
        words = []
        for seen in group:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(seen.pid)
                mark = _environ(process).get(ENGINE_MARK, "no mark")
                line = " ".join(process.cmdline())[:100]
                words.append(f"{seen.pid} ({mark}, {process.status()}, parent {process.ppid()}: {line})")
        return ", ".join(words)

    def stored_points(self) -> list[Point]:
        """All points in the database as it is now."""
        if not self.database.exists():
            return []
        with contextlib.closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as database:
            return _points(database)

    def check_points(self, reported: int) -> None:
        """Every point that was ever stored is stored still, as it was; every reported one is stored."""
        if self.database.exists():
            with contextlib.closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as database:
                self.counts.databases_damaged += database.execute("pragma integrity_check").fetchone()[0] != "ok"
        rows = self.stored_points()
        now = {row[0]: json.dumps(row) for row in rows}
        lost = sum(now.get(number) != row for number, row in self.known.items())
        fresh = sum(row[2] in ("trial", "final") for row in rows if row[0] not in self.known)
        lost += max(0, reported - fresh)
        if lost:
            self.counts.points_lost += lost
            self.counts.notes.append(f"life {self.lives}: {lost} points lost ({reported} reported, {fresh} new)")
        self.known = now


def _points(database: sqlite3.Connection) -> list[Point]:
    """(id, value, role of the engine, measurement) of every stored point."""
    try:
        return database.execute(
            "select p.id, p.value, b.role, p.measurement from autotune_point p join autotune_boot b on b.id = p.boot_id"
        ).fetchall()
    except sqlite3.OperationalError:  # killed before the tables were made
        return []


def _engine_id(seen: Seen) -> str:
    """The mark of the engine that a process belongs to; empty where it cannot be read any more."""
    try:
        return _environ(psutil.Process(seen.pid)).get(ENGINE_MARK, "")
    except psutil.Error:
        return ""


def _role(seen: Seen) -> str:
    """Which victim a process is, or something else."""
    process = psutil.Process(seen.pid)
    if _environ(process).get(ENGINE_MARK, "").startswith(WARM_MARK):
        return "warm server"
    if os.getsid(seen.pid) == seen.pid:
        return "api server"
    return "engine core" if process.name().startswith("VLLM::EngineCor") else process.name()


def _environ(process: psutil.Process) -> Mapping[str, str]:
    try:
        environ: Mapping[str, str] = process.environ()
    except psutil.Error:
        return {}
    return environ
