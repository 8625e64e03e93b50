"""`FinishedModel`, what is done with a trained model in Python."""

import abc
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_tf.families.usage_options import NO_OPTIONS, UsageOptions
from bert_tf.recipe import join_settings

if TYPE_CHECKING:
    from bert_tf.conversion import ConversionReport
    from bert_tf.families.task import TaskTemplate
    from bert_tf.inference.load import LoadedModel


class FinishedModel(abc.ABC):
    """Base of models that predict, are scored, exported and converted.

    Attributes:
      folder: the model's folder.
      options: how the model is used, where its folder does not state it.
      task: the task of its training; None is the one that its folder states.
    """

    folder: pathlib.Path
    options: UsageOptions = NO_OPTIONS
    task: "TaskTemplate | None" = None

    @property
    @abc.abstractmethod
    def _loaded(self) -> "LoadedModel":
        """The model in memory."""

    def predict(
        self,
        input: Any,
        output: str | os.PathLike | None = None,
        *,
        text_column: str | None = None,
        keep_columns: str | None = None,
        settings: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> pathlib.Path | list[dict[str, Any]] | dict[str, Any]:
        """Answers the rows of files or a table, or one text.

            model.predict("new.csv", "answers.csv")
            model.predict(frame, keep_columns="*")

        See `bert_tf.predict` for the arguments.
        """
        from bert_tf.inference.predict import predict

        return predict(
            *(self._loaded, input, output),
            text_column=text_column,
            keep_columns=keep_columns,
            settings=settings,
            **others,
        )

    def evaluate(
        self,
        data: Any,
        *,
        text_columns: str | None = None,
        label_column: str | None = None,
        task: "TaskTemplate | None" = None,
        settings: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> dict[str, float]:
        """Computes the task's scores on labelled data.

            model.evaluate("test.csv")["accuracy"]

        They are those of `bert-tf finetune --mode=eval`. The model is read from
        its folder, in the precision of its training.

        Args:
          data: in the forms that `bert_tf.finetune` takes. Of a folder with
            several dev splits, the first is scored.
          text_columns, label_column: columns of the data, if they are not those
            of the training.
          task: the task object of a model that was trained for another task
            than sentence, choice, questions and tagging.
          settings: other settings by name, as a mapping.
          **others: any other setting of the recipe that differs from the
            training's, such as bad_rows or ensemble.

        Returns:
          The scores by name.

        Raises:
          UserError: the folder is not that of a fine-tuning, or the data do not
            fit the model.
        """
        from bert_tf.finetuning.finished import DERIVED, evaluate

        columns = {"text_columns": text_columns, "label_column": label_column}
        given = join_settings(columns | others, settings, DERIVED)
        return evaluate(self.folder, data, task or self.task, given)

    def export(
        self,
        path: str | os.PathLike,
        file_format: str = "saved_model",
        *,
        version: int | None = None,
        precision: str | None = None,
        quantize: str = "none",
        settings: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> pathlib.Path:
        """Writes the model for TensorFlow Serving or another runtime.

            model.export("served/stars")
            model.export("small/stars", "onnx")

        See `bert_tf.export`, which has more arguments.
        """
        from bert_tf.inference.export_model import export

        return export(
            *(self.folder, path, file_format),
            version=version,
            precision=precision,
            quantize=quantize,
            options=self.options,
            task=self.task,
            settings=settings,
            **others,
        )

    def convert(self, to: str, path: str | os.PathLike) -> "ConversionReport":
        """Writes the model in another layout, and compares both.

            model.convert(to="hugging_face", path="hub/stars")

        See `bert_tf.convert`, which has more arguments.
        """
        from bert_tf.conversion.convert import convert

        return convert(self.folder, to, path)
