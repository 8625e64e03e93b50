"""Parses Apache Beam's options from one string, before a pipeline starts."""

import argparse
import difflib
import shlex
from typing import TYPE_CHECKING, NoReturn

from bert_tf.corpora.data_sets import quiet
from bert_tf.errors import UserError

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

# Runs on this machine; DirectRunner first tries to download another engine.
_DEFAULT_RUNNER = "FnApiRunner"


def parse_options(text: str) -> "PipelineOptions":
    """Parses options like a shell and sets them for Beam's file systems.

    Args:
      text: the options as on the command line.

    Returns:
      The options, with a default runner.

    Raises:
      UserError: Beam is not installed, does not have an option, or rejects its
        value.
    """
    try:
        # Beam warns about missing cloud libraries, needed or not.
        with quiet():
            import apache_beam  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"Apache Beam cannot be imported ({error}); run "
            'pip install "bert_tf[beam]"'
        ) from None
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options import pipeline_options

    def fail(message: str) -> NoReturn:
        raise UserError(f"`beam_options`={text}: {message.rstrip('.')}.")

    try:
        words = shlex.split(text)
    except ValueError as error:
        fail(str(error).lower())

    def check(parser: argparse.ArgumentParser) -> None:
        # By default argparse prints the usage and exits.
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
