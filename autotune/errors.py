"""Every error that a person can meet, in one tree.

    AutotuneError            exit 1  something failed; the message says what and what to do next
    ├── UsageError           exit 2  an input is wrong: flag, file, name, value
    ├── EnvironmentFault     exit 3  the machine is at fault (leftover process, disk, driver, network)
    ├── StoreError           exit 4  the study's database cannot be used
    └── Interrupted          exit 130  stopped on request; what was measured is kept

The command line prints ``str(error)`` in one or two lines and exits with ``exit_code``; a traceback
appears only with ``--debug``. A message states what happened, the value that caused it and what to do.
"""


class AutotuneError(Exception):
    """Base of all errors that are told to a person."""

    exit_code = 1


class UsageError(AutotuneError):
    """A value that a person gave cannot be used."""

    exit_code = 2


class EnvironmentFault(AutotuneError):
    """The machine, not a configuration, is the cause: nothing is learned from it."""

    exit_code = 3


class StoreError(AutotuneError):
    """The study's database cannot be opened, read or written."""

    exit_code = 4


class Interrupted(AutotuneError):
    """The person asked to stop."""

    exit_code = 130
