"""Errors that a user can mend."""


class UserError(ValueError):
    """A mistake of the user's, told in one line.

    The message names the argument, in backticks, the file and row where there
    is one, the value received and what would do. The commands in `tools/`
    print it without a stack trace, with flags for the names of arguments, and
    exit with code 1.
    """


def excerpt(value: object) -> str:
    """A value as an error shows it: quoted, and at most 60 characters."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


class WorkerLost(RuntimeError):
    """Another worker of the run is gone; the run can be gone on with.

    The commands that train start anew when they meet it, wait for the lost
    worker and go on from the last training state.
    """


class RunStopped(RuntimeError):
    """SIGTERM ended the run, which kept its state and can be gone on with.

    The commands that train end with the exit code 75 when they meet it. Ctrl-C
    ends a run alike, by a KeyboardInterrupt and with the exit code 130.
    """
