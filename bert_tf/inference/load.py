"""Loads a model folder as a function from texts to plain Python answers."""

import copy
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.sentence_modules import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    first_prompt,
)
from bert_tf.config import KERAS, PRECISIONS
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError, check_choice, whole_number
from bert_tf.families.requests import Refusal, refusal_of
from bert_tf.families.text_model import (
    EMBED_WITH_PROMPT,
    PROMPT_NAME,
    SERVING_DEFAULT,
    Answer,
    TextModel,
    encoder_of,
)
from bert_tf.families.usage_options import (
    NO_OPTIONS,
    ZERO_SHOT_TEMPLATE,
    UsageOptions,
    pair_task,
)
from bert_tf.inference.cells import (
    CHOICES,
    COLUMNS,
    Inputs,
    cells_of,
    column_of,
    length_of,
)
from bert_tf.inference.finished_model import FinishedModel
from bert_tf.inference.served_folder import (
    describe_model,
    describe_training,
    served_model,
)
from bert_tf.progress import Progress
from bert_tf.runtimes.runtime import open_runtime
from bert_tf.side_by_side import cores_per_batch, side_by_side
from bert_tf.sources import local_folder
from bert_tf.text.given_texts import Text, members
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.families.pretrained.answers import PretrainedModel
    from bert_tf.families.pretrained.settings import Settings
    from bert_tf.inference.explanation import Explanation

Texts = str | Iterable[str]


class LoadedModel(FinishedModel):
    """A model that maps texts to answers; see `load`.

    Attributes:
      encoder: the BertEncoder.
      tokenizer: the tokenizer, such as a `BertTokenizer`.
      labels: names of the labels; may be empty.
      facts: description of the model, as in an export's model.json: task,
        labels, threshold, max_seq_length, sizes, and the scores and numbers of
        examples of its training.
      served: the model of text, as it is exported.
      folder: the model's folder.
      batch_size: rows per batch.
      options: how the model is used, where its folder does not state it.
      device: name of a TensorFlow device; None leaves the choice to TensorFlow.

    Args:
      served, folder, batch_size, options, device: see above.
    """

    def __init__(
        self,
        served: TextModel,
        folder: pathlib.Path,
        batch_size: int = 32,
        device: str | None = None,
        options: UsageOptions = NO_OPTIONS,
    ):
        self.served = served
        self.options = options
        self.folder = folder
        self.batch_size = batch_size
        self.device = device
        self.facts: dict[str, Any] = describe_model(self.served)
        self.facts |= describe_training(self.folder)
        signatures = self.served.signatures()
        self._function = signatures[SERVING_DEFAULT]
        self._with_prompt = signatures.get(EMBED_WITH_PROMPT, self._function)
        # The encoder as a model of vectors, by settings; see `vectors.py`.
        self.vector_models: dict[Settings, PretrainedModel] = {}

    @property
    def _loaded(self) -> "LoadedModel":
        return self

    @property
    def encoder(self) -> BertEncoder:
        """The model's encoder."""
        return encoder_of(self.served.model)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.served.tokenizer

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels; may be empty."""
        return self.served.labels

    def __repr__(self) -> str:
        config = self.encoder.config
        labels = f", labels={list(self.labels)}" if self.labels else ""
        return (
            f"<LoadedModel {str(self.folder)!r}: {self.served.task}, takes "
            f"{', '.join(self.served.columns)}{labels}; "
            f"{config.num_hidden_layers} layers of {config.hidden_size}, "
            f"max_seq_length={self.served.max_seq_length}; computed by "
            f"{self.served.computed_by}>"
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
        """Answers one row or a list of rows.

        Arguments and the keys of the answer depend on the task:

        - classes: text and, for pairs, text_b -> label, probability, and
          probabilities of all labels by name.
        - multi-label: text -> labels above the threshold, and probabilities.
        - regression: text -> score.
        - entities: text -> entities, a list of text, label, start and end in
          characters, and score.
        - questions: question and context -> answer, start and end in
          characters of the context, score, no_answer_probability; without an
          answer "" and -1.
        - choices: text, choices and, as in SWAG, start, the beginning of all
          choices -> choice, its index, answer, its text, and probabilities.
          Empty choices are ignored.
        - pre-trained, with a masked-LM head: text with [MASK]s -> masks, for
          each a list of the most likely tokens, with token and probability.
          Without the head: text -> embedding, the mean of the last layer. See
          `bert_tf.embed` for other embeddings of both.
        - sentence-transformers (modules.json): text -> embedding, the result of
          its encode().

        Args:
          text: a text or an iterable of texts.
          text_b: the second text of a pair.
          question: the question.
          context: the text that contains the answer.
          choices: the texts to choose from, or a list of them for each row.
          start: the beginning of all choices.
          prompt_name: name of a sentence-transformers prompt to prepend to each
            text; None is the default prompt.

        Returns:
          A dict, or a list of dicts if an argument is a list. A single text is
          combined with each element of the lists.

        Raises:
          UserError: an argument does not apply, is missing, empty or no text,
            or the model has no answer, for example to a text that is too long.
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
        """Attributes an answer to the words of its input.

            print(model.explain("A moving film."))
            model.explain("A moving film.").write("why.html")

        Integrated gradients of the word embeddings (Sundararajan et al. 2017)
        use the text with all tokens replaced by [MASK] as the baseline. The
        attributions add up to the difference of the answer's log odds between
        text and baseline, up to `completeness_error`. Occlusion replaces each
        word in turn by [MASK]. The attribution of a word is the sum over its
        tokens; [CLS] and [SEP] are never replaced.

        Args:
          text, text_b, question, context, choices, start: one row, as for a
            call.
          target: the answer to explain; None is the model's answer. A label;
            for questions another answer in the context, or "" for no answer;
            for entities an entity, by default the first, or a word, whose tag
            is explained; for choices an index or a text; for [MASK]s a token at
            the first mask. Multi-label models default to the likeliest label.
          method: "integrated_gradients" or "occlusion".
          steps: quadrature nodes; None doubles them from 32 to 1,024 until the
            completeness error is below 1 %.

        Returns:
          The words with their attributions, and attention by layer and head.

        Raises:
          UserError: as for a call; or the model has no task, the text has no
            words or too many, or an argument is invalid.
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
        with tf.device(self.device):
            return explain(self.served, rows[0], answer, target, method, steps)

    def encode(
        self,
        texts: str | Iterable[Text],
        *,
        prompt_name: str | None = None,
        normalize: bool = False,
        truncate_dim: int | None = None,
        precision: str = "float32",
        calibration: Any = None,
    ) -> np.ndarray:
        """Computes a vector per text, as sentence-transformers' `encode`.

            vectors = model.encode(["A calm sea.", "Still water."])
            model.similarity(vectors[0], vectors)

        Args:
          texts: an iterable of strings or pairs of strings; or one string.
          prompt_name: the folder's prompt to prepend to each text; None is its
            default prompt, if there is one.
          normalize: whether to divide each vector by its length, after
            `truncate_dim`.
          truncate_dim: how many of a vector's first numbers to keep, for models
            trained for that (Matryoshka); None for all.
          precision: "float32"; "int8" or "uint8", a byte per number;
            "binary" or "ubinary", a bit per number, packed in signed or
            unsigned bytes.
          calibration: for a byte per number, vectors in float32, [C, D], whose
            ranges the bytes cover; None takes those of the texts. Vectors that
            are compared need the same.

        Returns:
          [N, D] in the order of the texts, or [N, ceil(D / 8)] of bits; without
          the first axis for one string. Of a SparseEncoder (SPLADE) the weights
          of its V tokens, a CSR matrix of SciPy, float32 [N, V]; see `tokens`.
          Of a MultiVectorEncoder (ColBERT), by `encode_query` and
          `encode_document`, a list of arrays, float32 [T, D], with a vector per
          token, and for one string its array.

        Raises:
          UserError: see `bert_tf.embed`; or an argument is out of range.
        """
        from bert_tf.inference.encode import encode

        return encode(
            *(self, texts, prompt_name, normalize, truncate_dim),
            *(precision, calibration),
        )

    def encode_query(
        self,
        texts: str | Iterable[Text],
        *,
        normalize: bool = False,
        truncate_dim: int | None = None,
        precision: str = "float32",
        calibration: Any = None,
    ) -> np.ndarray:
        """Computes vectors of queries: `encode` with the prompt "query"."""
        return self.encode(
            texts,
            prompt_name=first_prompt(self.served.modules, QUERY_PROMPTS),
            normalize=normalize,
            truncate_dim=truncate_dim,
            precision=precision,
            calibration=calibration,
        )

    def encode_document(
        self,
        texts: str | Iterable[Text],
        *,
        normalize: bool = False,
        truncate_dim: int | None = None,
        precision: str = "float32",
        calibration: Any = None,
    ) -> np.ndarray:
        """Computes vectors of documents: `encode` with the prompt "document".

        The first of the prompts document, passage and corpus is taken.
        """
        return self.encode(
            texts,
            prompt_name=first_prompt(self.served.modules, DOCUMENT_PROMPTS),
            normalize=normalize,
            truncate_dim=truncate_dim,
            precision=precision,
            calibration=calibration,
        )

    def similarity(self, first: Any, second: Any) -> np.ndarray:
        """Computes the similarities of vectors by the folder's function.

        Its similarity_fn_name is cosine, dot, or the negative distance
        euclidean or manhattan; by default cosine. Of a SparseEncoder it is dot,
        or cosine; of a MultiVectorEncoder maxsim, or meanmaxsim.

        Args:
          first, second: vectors, float [A, D] and [B, D], or one, [D]; or as
            `encode`, `encode_query` and `encode_document` return them.

        Returns:
          float32 [A, B].

        Raises:
          UserError: the vectors are no finite numbers or of different widths.
        """
        from bert_tf.inference.encode import similarity

        return similarity(self, first, second)

    def tokens(self, vectors: Any) -> Any:
        """Returns the weights of sparse vectors by token, the largest first.

        Args:
          vectors: of a SparseEncoder, a CSR matrix or an array [N, V], or one.

        Returns:
          N dictionaries; one for one vector.

        Raises:
          UserError: the model is no SparseEncoder, or the vectors have another
            width.
        """
        from bert_tf.inference.token_vectors import tokens

        return tokens(self, vectors)

    def rank(
        self, query: str, documents: Iterable[str], top_k: int | None = None
    ) -> list[dict[str, Any]]:
        """Ranks documents by their scores for a query, as a cross-encoder.

            model = bert_tf.load("hub/ms-marco-MiniLM-L6-v2")
            model.rank("Who wrote Emma?", documents, top_k=3)[0]["text"]

        Args:
          query: the query.
          documents: the documents.
          top_k: number of documents to return; None for all.

        Returns:
          Of each document a dict of corpus_id, its index, score and text; best
          first, and in the given order where scores are equal.

        Raises:
          UserError: the model scores no pairs of texts, or an argument is
            empty or no text.
        """
        from bert_tf.inference.rank import rank

        return rank(self, query, documents, top_k)

    def classify(
        self,
        texts: Texts,
        labels: Iterable[str],
        template: str = ZERO_SHOT_TEMPLATE,
        multi_label: bool = False,
    ) -> Any:
        """Classifies texts by labels that the model was not trained on.

            nli = bert_tf.load("hub/nli", task="text_pair_classification")
            nli.classify("It rains in Rome.", ["weather", "sport"])["label"]

        A label holds as far as the text entails the template with the label, as
        in transformers' pipeline zero-shot-classification, whose template is by
        default "This example is {}.". Long texts are truncated.

        Args:
          texts: a text or an iterable of texts.
          labels: the labels.
          template: a sentence with {} in the place of the label.
          multi_label: whether each label holds or not by itself; by default
            exactly one does.

        Returns:
          For a text, or a list for several, a dict of label, its probability,
          and probabilities of all labels by name; with `multi_label` of labels,
          those with a probability above 0.5, and probabilities.

        Raises:
          UserError: the model is no classifier of pairs with a label that
            begins with entail; or an argument is invalid.
        """
        return self.with_labels(labels, template, multi_label)(texts)

    def with_labels(
        self,
        labels: Iterable[str],
        template: str = ZERO_SHOT_TEMPLATE,
        multi_label: bool = False,
    ) -> "LoadedModel":
        """Returns a classifier of texts by other labels; see `classify`.

        nli.with_labels(["weather", "sport"]).predict("news.csv", "out.csv")
        """
        from bert_tf.families.text_classification.zero_shot import (
            ZeroShotModel,
            check_candidates,
        )

        names = check_candidates(members(labels, "`labels`"), "labels")
        place = f"`model`={self.folder}"
        served = ZeroShotModel(self.served, names, template, multi_label, place)
        model = copy.copy(self)
        model.served, model._function = served, served.answers
        about = {"task": served.task, "labels": names, "template": template}
        model.facts = self.facts | about
        return model

    def answers(
        self, rows: Sequence[Inputs]
    ) -> Iterator[tuple[int, Answer | Refusal]]:
        """Yields the answers of rows, batched by length.

        Up to `batch_size` rows are one batch, as in a server's request. More
        rows are batched by length, which may change the last digits.

        Args:
          rows: the model's inputs, by column.

        Yields:
          The index of a row and its answer, or why it has none.

        Raises:
          UserError: an output of the model is not finite.
        """
        order = np.arange(len(rows))
        if len(rows) > self.batch_size:
            lengths = [sum(map(length_of, row.values())) for row in rows]
            # The longest first, so that running out of memory shows early.
            order = np.argsort(-np.array(lengths), kind="stable")
        batches = [
            order[begin : begin + self.batch_size].tolist()
            for begin in range(0, len(rows), self.batch_size)
        ]

        def answer(chosen: list[int]) -> list[Answer | Refusal]:
            return self._answer([rows[number] for number in chosen])

        results = side_by_side(answer, batches)
        for chosen, answers in zip(batches, results, strict=True):
            yield from zip(chosen, answers, strict=True)

    def _answer(self, rows: Sequence[Inputs]) -> list[Answer | Refusal]:
        """Answers a batch; splits it if one of its rows is refused."""
        function, columns = self._function, self.served.columns
        if PROMPT_NAME in rows[0]:
            function, columns = self._with_prompt, (*columns, PROMPT_NAME)
        try:
            with tf.device(self.device):
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

    def _for_pairs(self, name: str) -> str:
        """Returns advice for a missing second text, or ""."""
        if name != "text_b" or "fine_tuned_for" in self.facts:
            return ""
        task = pair_task(self.served.task)
        return f" Load it with `task`={task} for pairs." if task else ""

    def _rows(self, *values: Any) -> tuple[list[Inputs], tuple[str, ...]]:
        """Returns the arguments as rows, and the names of those that are lists.

        Args:
          *values: values of `COLUMNS`, or None.
        """
        pairs = zip(COLUMNS, values, strict=True)
        given = {name: value for name, value in pairs if value is not None}
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
        rows: list[Inputs] = [
            dict(zip(columns, row, strict=True))
            for row in zip(*filled, strict=True)
        ]
        return rows, tuple(sizes)


def load(
    folder: str | os.PathLike,
    batch_size: int = 32,
    precision: str = "float32",
    device: str | None = None,
    runtime: str = KERAS,
    *,
    task: str | None = None,
    labels: Sequence[str] | None = None,
    max_seq_length: int | None = None,
    threshold: float | None = None,
    split_special_tokens: bool | None = None,
) -> LoadedModel:
    """Loads a model of any task for inference in Python.

    The model computes the same answers as the exported and served folder; see
    `LoadedModel.__call__` for its inputs and outputs:

        model = bert_tf.load("out/sst2")
        model("A lovely film.")["label"]

    A fine-tuned model of transformers, or a head in Google's or Model Garden's
    layout, is used as its folder states: labels, problem_type and the longest
    input. Arguments supply what a folder does not state:

        model = bert_tf.load("hub/nli", task="text_pair_classification")
        model("A man sleeps.", "A man is awake.")["label"]

    Args:
      folder: a folder of `bert-tf finetune`, or a fine-tuned or pre-trained
        model of any family, hf://organisation/name or keras_hub://preset.
      batch_size: rows per batch.
      precision: float32, mixed_bfloat16 or mixed_float16.
      device: cpu, gpu, or gpu:1 for the second GPU; None leaves the choice to
        TensorFlow, a GPU if there is one.
      runtime: what computes the network: keras; openvino, onnx or litert, on
        the CPU, from a file that is kept in the folder; or auto, which is
        openvino where it is installed (pip install "bert_tf[openvino]") and
        else Keras. Their outputs are compared with Keras' when the model is
        loaded. openvino computes in float32 or, with
        precision="mixed_bfloat16", in bfloat16, the others in float32.
      task: the task of a sequence classifier whose folder has no task.json:
        text_classification, text_multi_label_classification or
        text_regression, or with text_pair instead of text for pairs of texts.
        Other models accept only their own task, and embeddings instead of
        fill_mask.
      labels: names of the outputs in their order, if the folder has none.
      max_seq_length: longest row in tokens; longer texts are truncated, or
        split into windows if the model's task allows it.
      threshold: for multi-label models, the probability above which a label is
        returned; for questions, by how much the score of no answer must exceed
        that of the best answer.
      split_special_tokens: whether special tokens in texts, such as </s>, are
        split like other text, as in the authors' code; False takes them for the
        tokens, as transformers does. None splits them, except in folders of
        sentence-transformers. A [MASK] of a masked LM is always found.

    Returns:
      The model.

    Raises:
      UserError: the folder has no model of text; or an argument is invalid,
        does not apply to the model or contradicts its task.json.
    """
    batch_size = whole_number("batch_size", batch_size, 1)
    check_choice("`precision`", precision, PRECISIONS)
    options = UsageOptions(
        task, labels, max_seq_length, threshold, split_special_tokens
    )
    path, place = local_folder(folder), _device(device)
    other, of_keras = open_runtime(runtime, path, precision, cores_per_batch())
    with tf.device(place):
        served = served_model(path, of_keras, options=options)
        if other:
            served.compute_by(other)
    return LoadedModel(served, path, batch_size, place, options)


def _device(name: str | None) -> str | None:
    """Returns TensorFlow's name of a device."""
    if name is None:
        return None
    known = {
        device.name.removeprefix("/device:").lower(): device.name
        for device in tf.config.list_logical_devices()
    }
    for alias in (str(name).lower(), f"{name}:0".lower()):
        if alias in known:
            return known[alias]
    raise UserError(
        f"`device`={name}: there is no such device here; it takes one of "
        f"{', '.join(known)}."
    )
