"""The scheduler that is used by default; a class named by ``--scheduler-cls`` may derive from it."""

from vllm.v1.core.sched.scheduler import Scheduler


class AsyncScheduler(Scheduler):
    """Same decisions as its base: the stand-in has no overlap to schedule for."""
