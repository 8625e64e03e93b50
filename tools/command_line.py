"""What every command shares: quiet start-up and one-line errors."""

import errno
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping

from absl import app, flags, logging

from bert_tf.quiet_tensorflow import forget_log_level, import_tensorflow

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

# "Temporary failure" of sysexits.h: the same command goes on.
STOPPED = 75
_SECONDS_BEFORE_STARTING_ANEW = 2.0


def use_huge_pages() -> None:
    """Starts the command anew with its memory in huge pages, on Linux.

    A training step takes and returns large arrays all the time, and on a CPU
    a tenth of it went into their pages. glibc 2.35 and later reads the variable
    when a process starts, earlier ones pass it over; one that the user has set
    stays as it is.
    """
    if sys.platform == "linux" and "GLIBC_TUNABLES" not in os.environ:
        os.environ["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        os.execv(sys.executable, sys.orig_argv)


def _start_anew(why: str) -> None:
    """Replaces the process by the same command."""
    print(f"{why} Starting anew, to wait for it.", file=sys.stderr, flush=True)
    sys.stdout.flush()
    forget_log_level()
    # The other workers notice a little later.
    time.sleep(_SECONDS_BEFORE_STARTING_ANEW)
    os.execv(sys.executable, sys.orig_argv)


# How arguments of the library that are no flags of the command are given.
_given_as = {"inputs": "--input"}


def name_arguments(given_as: Mapping[str, str]) -> None:
    """Tells how arguments are given that have no flag of their name.

    Args:
      given_as: name of an argument to what a user of the command writes.
    """
    _given_as.update(given_as)


def name_fields(names: Iterable[str]) -> None:
    """Tells which fields of a recipe --set takes; some have flags too."""
    own = set(names).difference(flags.FLAGS)
    name_arguments({name: f"--set {name}" for name in own})


def with_flags(line: str) -> str:
    """Puts flags for the names of arguments, which are in backticks.

    Other words in backticks stay as they are.
    """

    def given_as(match: re.Match[str]) -> str:
        flag = f"--{match[1]}" if match[1] in flags.FLAGS else match[0]
        return _given_as.get(match[1], flag)

    return re.sub(r"`([a-z]\w*)`", given_as, line)


def fail(message: str) -> int:
    """Prints one error line and returns the exit code of a failure."""
    line = with_flags(" ".join(message.split()))
    print(f"error: {line}", file=sys.stderr, flush=True)
    return 1


def run(main: Callable[[], None], tensorflow: bool = True) -> None:
    """Parses the flags, runs `main` and ends the process.

    Args:
      main: the command.
      tensorflow: whether to import it first; a command that may do without
        calls `import_tensorflow` where it cannot.

    A `UserError` and an error of the operating system (a full disk, a missing
    permission) become one line on standard error and exit code 1; an
    interrupt exits with code 130, and a run that was asked to stop with 75. A
    run that lost another worker starts anew, to go on with it.
    """

    def no_words(words: list[str]) -> None:
        from bert_tf.errors import UserError

        if words:
            raise UserError(
                f"unexpected argument {words[0]!r}; flags are written "
                "--name=value."
            )
        main()

    run_on_words(no_words, tensorflow)


def run_on_words(
    main: Callable[[list[str]], None], tensorflow: bool = True
) -> None:
    """As `run`, for a command that takes words after its flags."""

    def guarded(arguments: list[str]) -> int:
        from bert_tf.errors import RunStopped, UserError, WorkerLost
        from bert_tf.progress import notice, reword

        reword(with_flags)
        # Names in other scripts shall not end a run on an ASCII terminal.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        logging.set_verbosity(logging.WARNING)
        try:
            if tensorflow:
                import_tensorflow()
            main(arguments[1:])
        except UserError as error:
            return fail(str(error))
        except RunStopped as stopped:
            notice(str(stopped))
            return STOPPED
        except WorkerLost as lost:
            _start_anew(str(lost))
        except OSError as error:
            if error.errno is None:
                raise
            where = f" ({error.filename})" if error.filename else ""
            hint = (
                "; free some space and run the same command again"
                if error.errno in (errno.ENOSPC, errno.EDQUOT)
                else ""
            )
            return fail(f"{error.strerror}{where}{hint}.")
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        return 0

    app.run(guarded, flags_parser=_parse)


def _parse(arguments: list[str]) -> list[str]:
    """Parses the flags; a mistake in them is one line too."""
    try:
        return flags.FLAGS(arguments)
    except flags.Error as error:
        line = str(error)
        if "must have a value other than None" in line:
            line = f"{line.partition('=')[0].removeprefix('flag ')} is needed"
        sys.exit(fail(f"{line.rstrip('.')}; --helpshort lists the flags."))


def require(*names: str) -> None:
    """Marks flags as required, with absl's own check."""
    flags.mark_flags_as_required(names)
