"""Options of Apache Beam as one string, checked before anything is started."""

import argparse
import difflib
import shlex
from typing import TYPE_CHECKING, NoReturn

from bert_tf.corpora.data_sets import quiet
from bert_tf.errors import UserError

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

# Of the one machine; DirectRunner first tries to download another.
_DEFAULT_RUNNER = "FnApiRunner"


def require_beam() -> None:
    """Raises `UserError` where Apache Beam is not installed."""
    try:
        # It warns of what is missing for clouds, needed or not.
        with quiet():
            import apache_beam  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"Apache Beam cannot be imported ({error}); run "
            'pip install "bert_tf[beam]"'
        ) from None


def parse_options(text: str) -> "PipelineOptions":
    """Splits options as a shell does, and refuses what Beam does not know.

    Args:
      text: as on a command line of Beam.

    Returns:
      The options, with a runner among them; Beam's file systems use them.

    Raises:
      UserError: Beam is not installed, does not have an option, or cannot
        take its value.
    """
    require_beam()
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options import pipeline_options

    def fail(message: str) -> NoReturn:
        raise UserError(f"`beam_options`={text}: {message.rstrip('.')}.")

    try:
        words = shlex.split(text)
    except ValueError as error:
        fail(str(error).lower())

    def check(parser: argparse.ArgumentParser) -> None:
        # argparse's own way is to print the usage and to exit.
        parser.error = fail  # type: ignore[method-assign]
        _, unknown = parser.parse_known_args(words)
        if unknown:
            word = unknown[0].partition("=")[0]
            known = [n for a in parser._actions for n in a.option_strings]
            near = difflib.get_close_matches(word, known, n=1)
            hint = f", did you mean {near[0]}?" if near else ";"
            fail(
                f"{word!r} is no option of Apache Beam{hint} an option is "
                "written as in '--runner=DirectRunner'"
            )

    options = pipeline_options.PipelineOptions(words)
    options.get_all_options(add_extra_args_fn=check)
    standard = options.view_as(pipeline_options.StandardOptions)
    standard.runner = standard.runner or _DEFAULT_RUNNER
    FileSystems.set_options(options)
    return options
