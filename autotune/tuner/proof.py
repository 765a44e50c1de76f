"""What ablation and soak showed of the exported configuration, as values for the record and in words."""

import math

from autotune.search.ablation import Contribution
from autotune.store.recommendation import Interval, Part, Soak
from autotune.tuner.ending import Ending
from autotune.tuner.finals import Entrant


def parts(ending: Ending, winner: Entrant | None) -> tuple[Part, ...]:
    """What each flag carries; nothing where what was ablated is not what is exported."""
    if winner is None or not _stands(ending, winner):
        return ()
    return tuple(Part(c.flag, _gain(c), winner.config.get(c.flag) is not None) for c in ending.ablation.parts)


def parts_text(ending: Ending, winner: Entrant | None, gain: float | None) -> list[str]:
    """Such as ``+38 %: --quantization fp8 24 ± 3, --block-size 5 ± 3; 4 flags not needed and dropped (…).``"""
    found = parts(ending, winner)
    if not found or winner is None:
        return []
    kept = [f"--{p.flag} {_size(p.gain)}" for p in found if p.kept]
    dropped = [f"--{p.flag}" for p in found if not p.kept]
    head = f"{100 * gain:+.0f} %: " if gain is not None else ""
    text = f"{head}{', '.join(kept) or 'no single flag carries it'}"
    if dropped:
        flags = "1 flag" if len(dropped) == 1 else f"{len(dropped)} flags"
        text += f"; {flags} not needed and dropped ({', '.join(dropped)})"
    untested = [f"--{flag}" for flag in ending.ablation.untested if winner.config.get(flag) is not None]
    if untested:
        text += f"; not measured: {', '.join(untested)}"
    return [f"{text}."]


def soak(ending: Ending) -> Soak | None:
    """The soak that the exported configuration held."""
    held = ending.soaked
    return Soak(held.in_flight, held.seconds) if held and held.held else None


def soak_text(ending: Ending) -> list[str]:
    """The soak in one line."""
    soaked = ending.soaked
    if soaked is None:
        return []
    if soaked.held is None:
        return [f"A soak at full load could not be judged: {soaked.reason}"]
    return [f"It held {soaked.seconds:.0f} s with {soaked.in_flight} of the longest requests in flight."]


def _stands(ending: Ending, winner: Entrant) -> bool:
    """Whether the exported configuration is the one whose flags were measured, or what was left of it."""
    return winner.config in [e.config for e in (ending.ablation.measured, ending.ablation.slimmer) if e]


def _gain(part: Contribution) -> Interval | None:
    return None if math.isinf(part.gain) else Interval(part.gain, part.low, part.high)


def _size(gain: Interval | None) -> str:
    if gain is None:
        return "(does not start without it)"
    return f"{100 * gain.value:.0f} ± {100 * (gain.high - gain.low) / 2:.0f}"
