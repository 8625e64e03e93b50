"""Shared by all commands: quiet start-up, help and one-line errors."""

import errno
import fnmatch
import io
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping

from absl import app, flags, logging

from bert_tf.errors import (
    RunStopped,
    UserError,
    WorkerLost,
    did_you_mean,
    one_line,
)
from bert_tf.libraries import forget_log_level, import_tensorflow
from bert_tf.progress import log, reword

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

# "Temporary failure" of sysexits.h: the same command resumes the run.
STOPPED = 75
_SECONDS_BEFORE_RESTART = 2.0
_HELP = re.compile("--?(h|[?]|help|helpshort|helpfull|helpxml)")
# Errors of libraries that are out of memory; others have a type. Status 1 is
# oneDNN's dnnl_out_of_memory.
_NO_MEMORY = re.compile(
    "bad_alloc|out of memory|OOM when|[Cc]annot allocate|failed to map segment|"
    "exception:Status: 1,"
)
# absl's error of a required flag.
_NO_VALUE = "must have a value other than None"
# absl's additions to the help of enum flags and of multi-flags.
_BY_ABSL = re.compile(
    r"^<[^>]*>: |;\s*repeat this option to specify a list of values"
)


def use_huge_pages() -> None:
    """Restarts the command with huge memory pages, on Linux.

    A training step allocates and frees large arrays; on a CPU page faults take
    a tenth of its time. glibc 2.35 and later reads the variable when a process
    starts. An existing value is kept.
    """
    if sys.platform == "linux" and "GLIBC_TUNABLES" not in os.environ:
        os.environ["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        os.execv(sys.executable, sys.orig_argv)


# Arguments of the library without a flag of the same name, and how the command
# takes them.
_given_as = {"inputs": "--input", "folder": "--model"}
# The flags that --model is another name of.
_models: list[str] = []
Later = Callable[[list[str], bool], flags.FlagValues]
_later: list[Later] = []
_groups: dict[str, str] = {}
_choices: dict[str, Callable[[], Iterable[str]]] = {}


def name_arguments(given_as: Mapping[str, str]) -> None:
    """Registers how a command takes arguments without a flag of their name."""
    _given_as.update(given_as)


def name_model(name: str) -> None:
    """Defines --model as another name of a flag, in messages too."""
    flags.DEFINE_alias("model", name)
    _models.append(name)


def define_later(define: Later) -> None:
    """Registers a function that defines flags, which the arguments decide on.

    Args:
      define: takes the arguments, and whether they ask for help; returns the
        flags to show in the help.
    """
    _later.append(define)


def group_help(groups: Mapping[str, str]) -> None:
    """Registers headings of the help, each with patterns of its flags.

    A flag stands below the first heading with its name; of the patterns, the
    order of those without * is that of the flags.
    """
    _groups.update(groups)


def name_choices(name: str, choices: Callable[[], Iterable[str]]) -> None:
    """Registers what a shell completes after a flag, besides files."""
    _choices[name] = choices


def with_flags(line: str) -> str:
    """Replaces names of arguments in backticks by flags.

    Other words in backticks are unchanged.
    """

    def given_as(match: re.Match[str]) -> str:
        flag = f"--{match[1]}" if match[1] in flags.FLAGS else match[0]
        return _given_as.get(match[1], flag)

    return re.sub(r"`([a-z]\w*)`", given_as, line)


def fail(message: str) -> int:
    """Prints an error as one line and returns exit code 1."""
    line = with_flags(" ".join(message.split()))
    print(f"error: {line}", file=sys.stderr, flush=True)
    return 1


def run(main: Callable[[], None], tensorflow: bool = True) -> None:
    """Parses the flags, runs `main` and exits.

    `UserError`, errors of the operating system (a full disk, a missing
    permission) and of too little memory become one line on standard error and
    exit code 1; a library may abort the process instead. An interrupt
    exits with code 130, a run stopped by SIGTERM with 75. A run that lost
    another worker restarts the command and resumes.

    Args:
      main: the command.
      tensorflow: whether to import TensorFlow first; other commands call
        `import_tensorflow` when they need it.
    """

    def no_words(words: list[str]) -> None:
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
    """As `run`, for a command with positional arguments."""

    def guarded(arguments: list[str]) -> int:
        reword(with_flags)
        if sys.stdout is None:
            # Another file would get the descriptor, and what libraries print.
            os.open(os.devnull, os.O_WRONLY)
        # Non-ASCII names must not fail a run on an ASCII terminal.
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
            log(str(stopped))
            return STOPPED
        except WorkerLost as lost:
            line = f"{lost} Starting again, to wait for it."
            print(line, file=sys.stderr, flush=True)
            sys.stdout.flush()
            forget_log_level()
            # The other workers detect the loss a little later.
            time.sleep(_SECONDS_BEFORE_RESTART)
            os.execv(sys.executable, sys.orig_argv)
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
        except KeyboardInterrupt as interrupt:
            print(str(interrupt) or "interrupted", file=sys.stderr)
            return 130
        except AttributeError:
            if sys.stdout is not None:
                raise
            return fail("standard output is closed; redirect it to a file.")
        except Exception as error:
            if not (
                isinstance(error, MemoryError)
                or type(error).__name__ == "ResourceExhaustedError"
                or _NO_MEMORY.search(str(error))
            ):
                raise
            return fail(
                f"out of memory ({one_line(error)}); give smaller batches or "
                "shorter rows (bert-tf plan-memory), or end other programs."
            )
        return 0

    app.run(guarded, flags_parser=_parse)


def _parse(arguments: list[str]) -> list[str]:
    """Parses the flags; an error in them is printed as one line."""
    # The last argument of the scripts of `bert-tf completion`.
    asked = re.fullmatch(r"--complete=(\w+)", arguments[-1])
    for_help = bool(asked) or any(map(_HELP.fullmatch, arguments))
    hint = "--help lists the flags."
    try:
        shown = [define(arguments, for_help) for define in _later]
        if for_help:
            show(_values(asked[1]) if asked else _help(shown))
            sys.exit()
        found = flags.FLAGS(arguments)
        for name in _models:
            typed = flags.FLAGS["model"].present
            if flags.FLAGS[name].present > typed > 0:
                raise UserError(f"--model and --{name}: give one of the two.")
            if typed or not flags.FLAGS[name].present:
                _given_as[name] = "--model"
        return found
    except UserError as error:
        sys.exit(fail(str(error)))
    except flags.UnrecognizedFlagError as error:
        name, defined_in = error.flagname, flags.FLAGS.find_module_defining_flag
        own = [n for n in flags.FLAGS if "absl" not in (defined_in(n) or "")]
        near = did_you_mean(name, sorted(own, key=_place), "--{}".format)
        sys.exit(fail(f"--{name}: no such flag.{near} {hint}"))
    except flags.Error as error:
        line = str(error).removeprefix("flag ").rstrip(".")
        name, _, value = line.removeprefix("--").partition("=")
        if _NO_VALUE in line:
            line = f"--{'model' if name in _models else name} is needed"
        elif "invalid literal" in line or "could not convert" in line:
            takes = flags.FLAGS[name].parser.syntactic_help
            line = f"--{name}={value.partition(': ')[0]}: takes {takes}"
        sys.exit(fail(f"{line}; {hint}"))


def _values(name: str) -> list[str]:
    """Returns the values of a flag that a shell completes."""
    if name in _choices:
        return [*_choices[name]()]
    flag = flags.FLAGS[name] if name in flags.FLAGS else None
    return flag.parser.enum_values if isinstance(flag, flags.EnumFlag) else []


def _help(later: Iterable[flags.FlagValues]) -> list[str]:
    """Returns the docstring, the flags, and those that are defined later."""
    lines = [(sys.modules["__main__"].__doc__ or "").strip()]
    own = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    own.sort(key=lambda flag: not _is_required(flag))
    names = {flag.name for flag in own}
    fields = [each[n] for each in later for n in each if n not in names]
    groups = {"Flags": own, "Fields of the recipe": fields}
    if _groups:
        groups = {heading: [] for heading in _groups}
        for flag in sorted(own + fields, key=lambda flag: _place(flag.name)):
            groups[[*_groups][_place(flag.name)[0]]].append(flag)
    for heading, group in groups.items():
        lines += ["", f"{heading}:"] if group else []
        for flag in group:
            lines += _flag_lines(flag)
    return lines


def _place(name: str) -> tuple[int, int]:
    """Returns the index of a flag's heading, and that of its pattern there."""
    for number, patterns in enumerate(_groups.values()):
        names = patterns.split()
        if number == 0 and name in _models:
            return 0, -1
        if name in names:
            return number, names.index(name)
        if any(fnmatch.fnmatch(name, each) for each in names):
            return number, len(names)
    return len(_groups), 0


def _is_required(flag: flags.Flag) -> bool:
    return any(_NO_VALUE in each.message for each in flag.validators)


def show(lines: list[str]) -> None:
    """Prints help, of which `... --help | head` reads a part."""
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        # Prevents another write when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flag_lines(flag: flags.Flag) -> list[str]:
    facts = ["required"] if _is_required(flag) else []
    takes = flag.parser.syntactic_help
    if isinstance(flag, flags.EnumFlag):
        takes = " or ".join(flag.parser.enum_values)
    facts += [takes] if takes else []
    if flag.default not in (None, "", []):
        default = str(flag.default_as_str).strip("'")
        facts.append(f"default: {default}")
    name = f"[no]{flag.name}" if flag.boolean else flag.name
    name = f"model, --{name}" if name in _models else name
    lines = [f"  --{name}" + (f" ({'; '.join(facts)})" if facts else "")]
    return lines + textwrap.wrap(
        _BY_ABSL.sub("", flag.help or ""),
        flags.get_help_width(),
        initial_indent=" " * 6,
        subsequent_indent=" " * 6,
        break_long_words=False,
        break_on_hyphens=False,
    )
