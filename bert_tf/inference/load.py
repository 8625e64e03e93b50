"""A model folder as a function from texts to answers in plain Python."""

import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import POOLER, load_checkpoint
from bert_tf.config import PRECISIONS
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError, check_choice, whole_number
from bert_tf.families.requests import Refusal, Tensors, refusal_of
from bert_tf.families.text_model import (
    EMBED_WITH_PROMPT,
    PROMPT_NAME,
    SERVING_DEFAULT,
    Answer,
    TextModel,
    encoder_of,
)
from bert_tf.families.usage_options import UsageOptions, pair_task
from bert_tf.inference.cells import (
    CHOICES,
    COLUMNS,
    Question,
    cells_of,
    column_of,
    length_of,
)
from bert_tf.inference.served_folder import (
    describe_model,
    describe_training,
    served_model,
)
from bert_tf.progress import Progress
from bert_tf.side_by_side import side_by_side
from bert_tf.sources import local_folder
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    # Whoever asks for answers alone loads none of these.
    from bert_tf.families.pretrained.settings import Settings
    from bert_tf.inference.explanation import Explanation
    from bert_tf.inference.vectors import Extractor

Texts = str | Iterable[str]


class LoadedModel:
    """A model that answers to texts; see `load`.

    Attributes:
      encoder: the BertEncoder.
      tokenizer: that of its architecture, such as a `BertTokenizer`.
      labels: names of the labels; none where the model has none.
      facts: what is known of the model, as model.json of an export has it:
        task, labels, threshold, max_seq_length, sizes, and of a training its
        task, scores and numbers of examples.
      served: the model as it is served.
      folder: where it was loaded from.
      batch_size: rows that are computed together.

    Args:
      served: see above.
      folder: see above.
      batch_size: see above.
      device: TensorFlow's name of where to compute; None is its choice.
    """

    def __init__(
        self,
        served: TextModel,
        folder: pathlib.Path,
        batch_size: int = 32,
        device: str | None = None,
    ):
        self.served = served
        self.folder = folder
        self.batch_size = batch_size
        self._device = device
        self.facts: dict[str, Any] = describe_model(self.served)
        self.facts |= describe_training(self.folder)
        self._function = self.served.signatures()[SERVING_DEFAULT]
        self._extractors: dict[Settings, Extractor] = {}

    @property
    def encoder(self) -> BertEncoder:
        """The encoder."""
        return encoder_of(self.served.model)

    @property
    def tokenizer(self) -> Tokenizer:
        """What turns texts into ids."""
        return self.served.tokenizer

    @functools.cached_property
    def _with_prompt(self) -> Callable[..., Tensors]:
        """What computes vectors of texts with a prompt that is named."""
        return self.served.signatures()[EMBED_WITH_PROMPT]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels; none where the model has none."""
        return self.served.labels

    def __repr__(self) -> str:
        config = self.encoder.config
        labels = f", labels={list(self.labels)}" if self.labels else ""
        return (
            f"<LoadedModel {str(self.folder)!r}: {self.served.task}, takes "
            f"{', '.join(self.served.columns)}{labels}; "
            f"{config.num_hidden_layers} layers of {config.hidden_size}, "
            f"max_seq_length={self.served.max_seq_length}>"
        )

    def __call__(
        self,
        text: Texts | None = None,
        text_b: Texts | None = None,
        *,
        question: Texts | None = None,
        context: Texts | None = None,
        choices: Iterable[str] | Iterable[Iterable[str]] | None = None,
        start: Texts | None = None,
        prompt_name: str | None = None,
    ) -> Any:
        """Answers to a text, or to a list of them.

        A model takes the arguments of its kind, and gives a dict:

        - classes: text and, of pairs, text_b -> label, probability, and the
          probabilities of all labels by name.
        - several labels a text: labels, those that hold, and probabilities.
        - regression: score.
        - entities: text -> entities, a list of text, label, start and end in
          characters, and score.
        - questions: question and context -> answer, start and end in
          characters of the context, score, no_answer_probability; where there
          is no answer, "" and -1.
        - choices: text, choices and, as in SWAG, start, what every choice
          begins with -> choice, its number from 0, answer, its text, and
          probabilities. A choice "" stands for none.
        - pre-trained, with a masked-LM head: text with [MASK] in it -> masks,
          for each one a list of the best, token and probability. Without one:
          text -> embedding, the mean of the last layer. `bert_tf.embed` takes
          both, and has more ways.
        - of sentence-transformers (modules.json): text -> embedding, what its
          encode() gives.

        Args:
          text: one text, or any number of them.
          text_b: the second text of a pair.
          question: what is asked.
          context: where the answer stands.
          choices: the texts to choose from, or such a list for each text.
          start: what every choice begins with.
          prompt_name: of a sentence-transformers model, which of its prompts is
            put before every text; None is its default one.

        Returns:
          A dict; a list of them where an argument is a list. One text beside
          a list goes with each of it.

        Raises:
          UserError: an argument is another kind's, missing, empty or no text,
            or the model does not answer to a text, such as one that is too
            long for it.
        """
        rows, lists = self._rows(
            text, text_b, question, context, choices, start
        )
        if prompt_name is not None:
            modules = self.served.modules
            if modules is None:
                raise UserError(
                    f"`prompt_name`={prompt_name}: this model, of "
                    f"{self.served.task}, has no prompts."
                )
            modules.prompt(prompt_name)
            if self.served.prompts:
                rows = [{**row, PROMPT_NAME: prompt_name} for row in rows]
        answers: list[Answer] = [{} for _ in rows]
        with Progress(
            "answering", len(rows), 0, " rows", passing=True
        ) as progress:
            for number, answer in self.answers(rows):
                if isinstance(answer, Refusal):
                    place = f"[{number}]" if lists else ""
                    raise UserError(f"`{answer.column}`{place} {answer.why}")
                answers[number] = answer
                progress.update(1)
        return answers if lists else answers[0]

    def explain(
        self,
        text: str | None = None,
        text_b: str | None = None,
        *,
        question: str | None = None,
        context: str | None = None,
        choices: Iterable[str] | None = None,
        start: str | None = None,
        target: str | int | None = None,
        method: str = "integrated_gradients",
        steps: int | None = None,
    ) -> "Explanation":
        """Tells how much of an answer is due to each word.

            print(model.explain("A moving film."))
            model.explain("A moving film.").write("why.html")

        Integrated gradients of the word embeddings (Sundararajan et al. 2017)
        start from the same text with [MASK] for each of its tokens. What the
        words add, together, is what the answer's log odds differ by from that
        text's; `completeness_error` tells how exactly. Occlusion puts [MASK]
        in the place of each word in turn. A word is put together of its
        tokens; [CLS] and [SEP] take no part.

        Args:
          text, text_b, question, context, choices, start: one row, as for a
            call.
          target: what to explain; None is the answer given. A label, of
            several labels the likeliest; of questions another answer that the
            context has, or "" for there being none; of entities one of them,
            None being the first, or a word, whose tag is explained; of
            choices the number of one, from 0, or its text; of [MASK]s a token
            at the first of them.
          method: "integrated_gradients" or "occlusion".
          steps: of the path; None doubles them, from 32 to 1,024, until the
            completeness error is below 1 %.

        Returns:
          The words with their shares, and attention by layer and head.

        Raises:
          UserError: as for a call; or the model has no task, the text no word
            or too many, or an argument is none.
        """
        from bert_tf.inference.explain import check_settings, explain

        check_settings(self.served, method, steps)
        rows, lists = self._rows(
            text, text_b, question, context, choices, start
        )
        if lists:
            name = next((n for n in lists if n != CHOICES), CHOICES)
            raise UserError(
                f"`{name}` is a list of rows; one answer is explained at a "
                "time."
            )
        ((_, answer),) = self.answers(rows)
        if isinstance(answer, Refusal):
            raise UserError(f"`{answer.column}` {answer.why}")
        with tf.device(self._device):
            return explain(self.served, rows[0], answer, target, method, steps)

    def answers(
        self, rows: Sequence[Question]
    ) -> Iterator[tuple[int, Answer | Refusal]]:
        """Answers to rows, those of similar length together.

        Up to `batch_size` rows are a request as the server computes it; of
        more, others are computed together, so that the last digits may differ.

        Args:
          rows: by column, of the model's kind.

        Yields:
          The number of a row and its answer, or why it has none.

        Raises:
          UserError: what the model gives is not finite.
        """
        order = np.arange(len(rows))
        if len(rows) > self.batch_size:
            lengths = [sum(map(length_of, row.values())) for row in rows]
            # The longest first, so that memory falls short early.
            order = np.argsort(-np.array(lengths), kind="stable")
        batches = [
            order[begin : begin + self.batch_size].tolist()
            for begin in range(0, len(rows), self.batch_size)
        ]

        def answer(chosen: list[int]) -> list[Answer | Refusal]:
            return self._answer([rows[number] for number in chosen])

        found = side_by_side(answer, batches)
        for chosen, answers in zip(batches, found, strict=True):
            yield from zip(chosen, answers, strict=True)

    def _answer(self, rows: Sequence[Question]) -> list[Answer | Refusal]:
        """Answers to a batch."""
        function, columns = self._function, self.served.columns
        if PROMPT_NAME in rows[0]:
            function, columns = self._with_prompt, (*columns, PROMPT_NAME)
        try:
            with tf.device(self._device):
                inputs = {
                    name: tf.constant(column_of(name, rows)) for name in columns
                }
                outputs = {
                    name: value.numpy()
                    for name, value in function(**inputs).items()
                }
        except tf.errors.InvalidArgumentError as error:
            if len(rows) > 1:
                each = [self._answer([row]) for row in rows]
                return list(itertools.chain.from_iterable(each))
            refusal = refusal_of(error)
            if refusal is None:
                raise
            return [refusal]
        for name, value in outputs.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise UserError(
                    f"{self.folder}: {name} of a text is not finite; the "
                    "model needs `precision`=float32."
                )
        return list(self.served.to_answers(outputs, rows))

    def extractor(self, settings: "Settings") -> "Extractor":
        """What computes vectors of texts; one for each settings.

        Raises:
          UserError: a setting does not suit the model.
        """
        from bert_tf.families.pretrained.settings import POOLED
        from bert_tf.inference.vectors import Extractor

        if settings not in self._extractors:
            has_pooler = True
            if settings.pooling == POOLED:
                has_pooler = POOLER in load_checkpoint(self.folder).heads
            self._extractors[settings] = Extractor(
                self.encoder,
                self.tokenizer,
                settings,
                self.served.modules,
                has_pooler,
            )
        return self._extractors[settings]

    def _for_pairs(self, name: str) -> str:
        """How a second text is given to a model that may take pairs."""
        if name != "text_b" or "fine_tuned_for" in self.facts:
            return ""
        task = pair_task(self.served.task)
        return f" Load it with `task`={task} for pairs." if task else ""

    def _rows(self, *values: Any) -> tuple[list[Question], tuple[str, ...]]:
        """The rows that arguments ask, and which arguments are lists of rows.

        Args:
          *values: those of `COLUMNS`; None was not given.
        """
        found = zip(COLUMNS, values, strict=True)
        given = {name: value for name, value in found if value is not None}
        columns = self.served.columns
        takes = f"this model, of {self.served.task}, takes " + " and ".join(
            f"`{name}`" for name in columns
        )
        for name in given:
            if name not in columns:
                raise UserError(f"`{name}`: {takes}.{self._for_pairs(name)}")
        for name in columns:
            if name not in given:
                raise UserError(f"`{name}` is missing; {takes}.")
        cells = {name: cells_of(name, given[name]) for name in columns}
        sizes = {n: len(c) for n, c in cells.items() if isinstance(c, list)}
        if len(set(sizes.values())) > 1:
            counts = ", ".join(f"`{n}` {size}" for n, size in sizes.items())
            raise UserError(
                f"{counts}: lists of different lengths; give as many of each."
            )
        count = next(iter(sizes.values()), 1)
        filled = [
            cell if isinstance(cell, list) else [cell] * count
            for cell in cells.values()
        ]
        rows: list[Question] = [
            dict(zip(columns, row, strict=True))
            for row in zip(*filled, strict=True)
        ]
        return rows, tuple(sizes)


def load(
    folder: str | os.PathLike,
    batch_size: int = 32,
    precision: str = "float32",
    device: str | None = None,
    *,
    task: str | None = None,
    labels: Sequence[str] | None = None,
    max_seq_length: int | None = None,
    threshold: float | None = None,
) -> LoadedModel:
    """Loads a model of any kind, to ask it in Python.

    It answers as the same folder does when it is exported and served. What it
    takes and gives is written at `LoadedModel.__call__`:

        model = bert_tf.load("out/sst2")
        model("A lovely film.")["label"]

    A fine-tuned model of transformers, or a head in Google's or Model Garden's
    layout, is used as its folder states: the names of its labels, problem_type
    and the longest input. What a folder does not state are arguments:

        model = bert_tf.load("hub/nli", task="text_pair_classification")
        model("A man sleeps.", "A man is awake.")["label"]

    Args:
      folder: what tools.run_finetuning left, or a fine-tuned or pre-trained
        model: a folder of any family, hf://organisation/name or
        keras_hub://preset.
      batch_size: rows that are computed together.
      precision: float32, mixed_bfloat16 or mixed_float16.
      device: where to compute: cpu, gpu, or gpu:1 for the second; None is
        TensorFlow's choice, a GPU if there is one.
      task: what a sequence classifier is used for, where its folder has no
        task.json: text_classification, text_multi_label_classification or
        text_regression, or the same with text_pair in place of text, for pairs
        of texts. Of other models the task that they have anyway, and
        embeddings in place of fill_mask.
      labels: names of the outputs in their order, where the folder has none.
      max_seq_length: the longest row in tokens; longer texts are truncated, or
        read through windows where the model's task allows it.
      threshold: of several labels a text, the probability above which a label
        holds; of questions, by how much having no answer must score above the
        best answer, which is given otherwise.

    Returns:
      The model.

    Raises:
      UserError: the folder holds no model that answers to texts; an argument
        has a wrong value, does not apply to the model or contradicts its
        task.json.
    """
    batch_size = whole_number("batch_size", batch_size, 1)
    check_choice("`precision`", precision, PRECISIONS)
    options = UsageOptions(task, labels, max_seq_length, threshold)
    path, place = local_folder(folder), _device(device)
    with tf.device(place):
        served = served_model(path, precision, options=options)
    return LoadedModel(served, path, batch_size, place)


def _device(name: str | None) -> str | None:
    """The name that TensorFlow has for a device."""
    if name is None:
        return None
    known = {
        device.name.removeprefix("/device:").lower(): device.name
        for device in tf.config.list_logical_devices()
    }
    for called in (str(name).lower(), f"{name}:0".lower()):
        if called in known:
            return known[called]
    raise UserError(
        f"`device`={name}: there is no such device here; it takes one of "
        f"{', '.join(known)}."
    )
