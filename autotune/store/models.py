"""The study's own tables; Optuna's lie beside them in the same database.

    host ─┐
          ├─▶ run ─▶ boot ─▶ point
                       └───▶ failure
    quality (by model, vLLM, device and precision: it outlives the runs that needed it)

A *run* is one study on one host; a *boot* is one engine started for it; a *point* is one load applied
to that engine; a *failure* says why a boot or a point did not give a number. Rows are written as
things happen: a boot row exists before its engine does, so that a killed tuner leaves a trace.
Times are UTC. JSON columns hold values that are only ever read whole.
"""

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import JSON, DateTime, Float, ForeignKey, Integer, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

JsonDict = dict[str, Any]


class Base(DeclarativeBase):
    """Declarative base; every table name starts with ``autotune_``."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {JsonDict: JSON}


def utc_now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


class HostRow(Base):
    """A machine, by what matters for tuning."""

    __tablename__ = "autotune_host"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    facts: Mapped[JsonDict]
    seen_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=utc_now)


class RunRow(Base):
    """One study: what was asked, on which host, with which vLLM, and how it ended.

    ``identity`` holds what must not change when the study is resumed; ``result`` the final verdict.
    """

    __tablename__ = "autotune_run"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    study: Mapped[str] = mapped_column(String(255), unique=True)
    host_id: Mapped[int] = mapped_column(ForeignKey("autotune_host.id"))
    identity: Mapped[JsonDict]
    settings: Mapped[JsonDict]
    status: Mapped[str] = mapped_column(String(32), default="running")
    spent_s: Mapped[float] = mapped_column(Float, default=0.0)
    result: Mapped[JsonDict | None] = mapped_column(JSON, default=None)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=utc_now)
    finished_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True), default=None)

    host: Mapped[HostRow] = relationship()
    boots: Mapped[list["BootRow"]] = relationship(back_populates="run", order_by="BootRow.id")


class BootRow(Base):
    """One engine. ``role``: baseline, trial or final. ``status``: booting, ready, failed, interrupted."""

    __tablename__ = "autotune_boot"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("autotune_run.id"), index=True)
    trial: Mapped[int | None] = mapped_column(Integer, default=None)
    role: Mapped[str] = mapped_column(String(16))
    kind: Mapped[str] = mapped_column(String(16), default="plain")
    config_key: Mapped[str] = mapped_column(String(32), index=True)
    flags: Mapped[JsonDict]
    env: Mapped[JsonDict]
    status: Mapped[str] = mapped_column(String(16), default="booting")
    boot_s: Mapped[float | None] = mapped_column(Float, default=None)
    stop_s: Mapped[float | None] = mapped_column(Float, default=None)
    phases_s: Mapped[JsonDict | None] = mapped_column(JSON, default=None)
    facts: Mapped[JsonDict | None] = mapped_column(JSON, default=None)
    log_path: Mapped[str] = mapped_column(Text, default="")
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=utc_now)

    run: Mapped[RunRow] = relationship(back_populates="boots")
    points: Mapped[list["PointRow"]] = relationship(back_populates="boot", order_by="PointRow.id")
    failure: Mapped["FailureRow | None"] = relationship(back_populates="boot")


class PointRow(Base):
    """One load on one engine. ``value`` is the objective's, None where the point is not measured or misses an SLO.

    ``details`` holds what limited it, its energy, its violations and what else the objective tells.
    """

    __tablename__ = "autotune_point"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    boot_id: Mapped[int] = mapped_column(ForeignKey("autotune_boot.id"), index=True)
    prompt_seed: Mapped[int] = mapped_column(Integer)
    live: Mapped[JsonDict]
    value: Mapped[float | None] = mapped_column(Float, default=None)
    measurement: Mapped[JsonDict]
    details: Mapped[JsonDict | None] = mapped_column(JSON, default=None)
    duration_s: Mapped[float] = mapped_column(Float)
    measured_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=utc_now)

    boot: Mapped[BootRow] = relationship(back_populates="points")


class FailureRow(Base):
    """Why an engine gave no number: the class, the first cause and the line that shows it."""

    __tablename__ = "autotune_failure"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    boot_id: Mapped[int] = mapped_column(ForeignKey("autotune_boot.id"), unique=True)
    cls: Mapped[str] = mapped_column(String(64), index=True)
    consequence: Mapped[str] = mapped_column(String(32))
    phase: Mapped[str] = mapped_column(String(32), default="")
    line: Mapped[str] = mapped_column(Text, default="")
    details: Mapped[JsonDict]

    boot: Mapped[BootRow] = relationship(back_populates="failure")


class QualityRow(Base):
    """How a precision answers beside the model as published, measured once for each scope.

    ``scope`` stands for model, revision, vLLM, device and texts; ``precision_key`` for the flags that change what is
    computed, empty for the model as published, whose ``reading`` is kept for comparing. ``comparison`` is that with
    the reference; of the reference itself, that with its repetition.
    """

    __tablename__ = "autotune_quality"
    __table_args__ = (UniqueConstraint("scope", "precision_key", name="uq_autotune_quality_scope"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    scope: Mapped[str] = mapped_column(String(64), index=True)
    precision_key: Mapped[str] = mapped_column(String(32))
    about: Mapped[JsonDict]
    comparison: Mapped[JsonDict]
    effect: Mapped[JsonDict]
    reading: Mapped[bytes | None] = mapped_column(LargeBinary, default=None)
    seconds: Mapped[float] = mapped_column(Float)
    measured_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=utc_now)
