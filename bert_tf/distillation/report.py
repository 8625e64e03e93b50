"""Teacher, student and undistilled student side by side."""

import dataclasses
import pathlib
from collections.abc import Mapping

from bert_tf.finetuning.measured import Measured, table, write_measured_page
from bert_tf.training.history import errors_become_warnings, write_numbers


@dataclasses.dataclass(frozen=True)
class Distillation:
    """A finished distillation.

    Attributes:
      title: the data that the models were scored on.
      metric: the score to compare them by.
      models: teacher, student and, if it was trained, undistilled: the same
        student trained without a teacher.
    """

    title: str
    metric: str
    models: Mapping[str, Measured]

    def table(self) -> str:
        """Scores x 100, perplexities, speed and size as a text table."""
        return table(self.title, self.models)


def write_report(distillation: Distillation, output_dir: pathlib.Path) -> None:
    """Writes distillation.json, .html and .svg, and prints where they are.

    A page that cannot be made is a warning.
    """
    path = output_dir / "distillation.html"
    values = dataclasses.asdict(distillation)
    write_numbers(path.with_suffix(".json"), values)
    with errors_become_warnings("the page", output_dir):
        write_measured_page(
            path,
            f"Distillation, {distillation.title}",
            "Teacher, student, and the same student without the teacher",
            distillation.models,
            distillation.metric,
            sorted(
                report.relative_to(output_dir).as_posix()
                for report in output_dir.glob("**/report.html")
            ),
        )
        print(f"side by side in {path}", flush=True)
