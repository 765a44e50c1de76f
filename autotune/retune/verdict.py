"""What the evidence of a night means.

    adopt-new-config   another configuration is proven better on the new version, and it is not worse than what runs now
    hold               the incumbent is slower on the new version, or does not run there
    adopt              the incumbent is faster on the new version
    equal              neither, and nothing worth mentioning can hide behind the noise
    undecided          the time or the rounds ended before one of these was proven

Against the record of an earlier night, where the old version is gone or only the machine has changed, a number must
differ by more than ``MARGIN``: two nights differ by the machine's mood, which rounds in turns cannot take out.
"""

import math
from dataclasses import dataclass
from typing import Literal

from autotune.retune.compare import ALPHA, MARGIN, WORTH, Comparison, Contrast
from autotune.retune.night import DEFAULT, FOUND, NEW, OLD, Evidence
from autotune.store.recommendation import Interval

ALONE = "vLLM's default does run, and is not slower than what runs now."

Verdict = Literal["adopt", "adopt-new-config", "hold", "equal", "undecided"]


@dataclass(frozen=True, slots=True)
class Decision:
    """``winner`` is the arm whose configuration should be launched on the new version, None where nothing is adopted.

    ``change`` compares the new version with what runs now, both with the incumbent; None where that was not measured.
    """

    verdict: Verdict
    winner: str | None
    change: Contrast | None
    reasons: tuple[str, ...]


def decide(evidence: Evidence, record: Interval | None) -> Decision:
    """The verdict; ``record`` is what the incumbent gave when it was adopted."""
    change = _change(evidence, record)
    if evidence.confirmed is not None and _accepted(evidence.confirmed, FOUND, evidence):
        return Decision("adopt-new-config", FOUND, change, (_won(evidence.confirmed, FOUND),))
    upgrade = evidence.upgrade
    if NEW not in upgrade.arms:
        why = evidence.failed.get(NEW)
        if why is None:
            return Decision("undecided", None, None, (_silent(evidence.unmeasured.get(NEW, "it was not measured")),))
        if _accepted(upgrade, DEFAULT, evidence):
            return Decision("adopt-new-config", DEFAULT, None, (f"The incumbent does not run there: {why}.", ALONE))
        return Decision("hold", None, None, (f"The incumbent does not run on the new version: {why}",))
    if _accepted(upgrade, DEFAULT, evidence):
        return Decision("adopt-new-config", DEFAULT, change, (_won(upgrade, DEFAULT),))
    if change is None or change.answer == "undecided":
        return Decision("undecided", None, change, (_open(change),))
    words = f"{_percent(change)} in {change.rounds} rounds"
    if change.answer == "slower":
        return Decision("hold", None, change, (f"The incumbent is slower on the new version: {words}.",))
    if change.answer == "faster":
        return Decision("adopt", NEW, change, (f"The incumbent is faster on the new version: {words}.",))
    return Decision("equal", None, change, (f"No difference: {words}.",))


def against_record(comparison: Comparison, arm: str, record: Interval) -> Contrast:
    """How ``arm`` does against a number of another night; all intervals at ``ALPHA`` on each side."""
    if arm not in comparison.arms or comparison.rounds == 0 or record.value <= 0:
        return Contrast(0.0, -1.0, math.inf, "undecided", 0)
    gain = comparison.sign * (math.log(comparison.value(arm)) - math.log(record.value))
    own = comparison.half_width(ALPHA) / math.sqrt(2)
    theirs = (math.log(record.high) - math.log(max(record.low, 1e-9))) / 2
    half, least = math.hypot(own, theirs), -math.log1p(-MARGIN)
    answer: Literal["slower", "faster", "equal", "undecided"] = "undecided"
    if abs(gain) <= max(least, half):
        answer = "equal" if half <= 2 * least else "undecided"
    elif abs(gain) > half:
        answer = "slower" if gain < 0 else "faster"
    return Contrast(math.expm1(gain), math.expm1(gain - half), math.expm1(gain + half), answer, comparison.rounds)


def _change(evidence: Evidence, record: Interval | None) -> Contrast | None:
    upgrade = evidence.upgrade
    if NEW not in upgrade.arms:
        return None
    if OLD in upgrade.arms:
        return upgrade.contrast(NEW, OLD)
    return against_record(upgrade, NEW, record) if record else None


def _accepted(comparison: Comparison, arm: str, evidence: Evidence) -> bool:
    """Proven better than every other arm of the new version, and not worse than the old one."""
    if arm not in comparison.arms:
        return False
    rivals = [name for name in comparison.arms if name not in (arm, OLD)]
    if not all(comparison.contrast(arm, rival).answer == "faster" for rival in rivals):
        return False
    if OLD not in comparison.arms:
        return bool(rivals) or OLD in evidence.failed
    against = comparison.contrast(arm, OLD)
    if rivals:
        return against.answer != "slower" and against.gain >= -WORTH
    return against.answer in ("faster", "equal")


def _won(comparison: Comparison, arm: str) -> str:
    rival = [name for name in comparison.arms if name != arm][-1]
    contrast = comparison.contrast(arm, rival)
    name = "vLLM's default" if arm == DEFAULT else "A new configuration"
    return f"{name} beats {rival}: {_percent(contrast)} in {contrast.rounds} rounds."


def _silent(why: str) -> str:
    return f"The incumbent gave no figure on the new version: {why}. Give more --budget, or keep the machine quieter."


def _open(change: Contrast | None) -> str:
    if change is None or change.rounds == 0:
        return "Too little was measured to say anything. Give more time with --budget."
    return (
        f"Not decided after {change.rounds} rounds: {_percent(change)}. "
        "Give more time with --budget, or keep the machine quieter."
    )


def _percent(contrast: Contrast) -> str:
    return f"{100 * contrast.gain:+.1f} % (interval {100 * contrast.low:+.1f} to {100 * contrast.high:+.1f} %)"
