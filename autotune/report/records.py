"""Every engine of a study as plain values, for ``result.json`` and reports."""

from typing import Any

from autotune.store.models import BootRow, RunRow


def trial_records(run: RunRow) -> list[dict[str, Any]]:
    """One record per engine, in the order in which they were started."""
    return [_record(boot) for boot in run.boots]


def _record(boot: BootRow) -> dict[str, Any]:
    failure = boot.failure
    return {
        "trial": boot.trial,
        "role": boot.role,
        "kind": boot.kind,
        "flags": boot.flags,
        "env": boot.env,
        "status": boot.status,
        "boot_s": boot.boot_s,
        "stop_s": boot.stop_s,
        "phases_s": boot.phases_s,
        "facts": boot.facts,
        "log": boot.log_path,
        "failure": failure and {"class": failure.cls, "line": failure.line, **failure.details},
        "points": [
            {
                "value": p.value,
                "prompt_seed": p.prompt_seed,
                "live": p.live,
                **(p.details or {}),
                "measurement": p.measurement,
            }
            for p in boot.points
        ],
    }
