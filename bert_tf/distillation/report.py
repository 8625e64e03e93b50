"""Teacher, student and undistilled student side by side: table and picture."""

import dataclasses
import io
import pathlib
from collections.abc import Mapping

from bert_tf.files import write_text, written_beside
from bert_tf.finetuning.measured import Measured, table
from bert_tf.report.figures import BLUE, GREY, ORANGE, drawing
from bert_tf.report.render import environment
from bert_tf.training.history import (
    errors_become_warnings,
    in_words,
    write_numbers,
)

NUMBERS_FILE = "distillation.json"
PICTURE_FILE = "distillation.svg"
PAGE_FILE = "distillation.html"
_COLORS = (GREY, BLUE, ORANGE)


@dataclasses.dataclass(frozen=True)
class Distillation:
    """A finished distillation.

    Attributes:
      title: what the models were scored on.
      metric: the score to compare them by.
      models: teacher, student and, where it was trained, undistilled: the same
        student without a teacher.
    """

    title: str
    metric: str
    models: Mapping[str, Measured]

    def table(self) -> str:
        """Scores times 100, perplexities, speed and size, in lines."""
        return table(self.title, self.models)

    def picture(self) -> bytes:
        """A panel each of score, speed and size; a line a model, as SVG."""
        panels = {
            f"{in_words(self.metric)}, x 100": {
                name: (100 * model.scores[self.metric], model)
                for name, model in self.models.items()
                if self.metric in model.scores
            },
            "rows a second": {
                name: (model.rows_per_second, model)
                for name, model in self.models.items()
            },
            "million parameters": {
                name: (model.parameters / 1e6, model)
                for name, model in self.models.items()
            },
        }
        panels = {name: points for name, points in panels.items() if points}
        with drawing(
            svg := io.BytesIO(), (1,) * len(panels), (5.6, 1.5 * len(panels))
        ) as axes_of:
            for axes, (name, points) in zip(
                axes_of, panels.items(), strict=True
            ):
                is_score = name.endswith("x 100")
                for place, (value, model) in enumerate(points.values()):
                    color = _COLORS[place]
                    if is_score:
                        # From no zero on: scores are close to each other.
                        spread = 100 * model.spread.get(self.metric, 0.0)
                        axes.errorbar(
                            value, place, xerr=spread, fmt="o", color=color
                        )
                    else:
                        axes.barh(place, value, 0.6, color=color)
                    axes.annotate(
                        f"{value:,.1f}",
                        (value, place),
                        xytext=(5, 6 if is_score else 0),
                        textcoords="offset points",
                        va="center",
                        fontsize=8,
                    )
                axes.set_yticks(range(len(points)), list(points))
                axes.set_ylim(len(points) - 0.4, -0.6)
                axes.margins(x=0.15)
                axes.set_xlabel(name)
                axes.grid(axis="y", visible=False)
        return svg.getvalue()


def write_report(distillation: Distillation, output_dir: pathlib.Path) -> None:
    """Writes distillation.json, its picture and its page, and says where.

    A picture or page that cannot be made is a warning.
    """
    write_numbers(output_dir / NUMBERS_FILE, dataclasses.asdict(distillation))
    with errors_become_warnings("the page", output_dir):
        svg = distillation.picture()
        with written_beside(output_dir / PICTURE_FILE) as beside:
            beside.write_bytes(svg)
        page = environment("bert_tf.distillation").get_template(
            "distillation.html.jinja"
        )
        html = page.render(
            title=distillation.title,
            models=distillation.models,
            svg=svg,
            others=sorted(
                path.relative_to(output_dir).as_posix()
                for path in output_dir.glob("**/report.html")
            ),
        )
        write_text(output_dir / PAGE_FILE, html)
        print(f"side by side in {output_dir / PAGE_FILE}", flush=True)
