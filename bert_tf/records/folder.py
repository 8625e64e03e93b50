"""Folders of pre-training records: their manifest, and how they are opened.

A folder of `bert-tf create-pretraining-data` holds
  records-00000-of-000NN.tfrecord     training records
  held_out-00000-of-00001.tfrecord    records of held-out documents
  tokenizer_config.json               the tokenizer, with its other files
  recipe.json                         how they were made
  records.json                        the manifest, written last
"""

import dataclasses
import glob
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

from bert_tf.checkpoints.tokenizers import read_tokenizer
from bert_tf.corpora.data_sets import PREFIX, describe
from bert_tf.corpora.recipe import TFDS
from bert_tf.corpora.sources import CorpusFile
from bert_tf.errors import UserError
from bert_tf.features import (
    PACKED_PRETRAINING_FEATURES,
    PRETRAINING_FEATURES,
    Feature,
)
from bert_tf.files import write_text
from bert_tf.recipe import read_json_object
from bert_tf.records.masking import most_predictions
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.record_file import (
    RecordFile,
    count_records,
    example_lengths,
    read_records,
)
from bert_tf.text.token_table import TokenTable
from bert_tf.text.tokenizer_protocol import TokenizerData

FORMAT_VERSION = 1
MANIFEST_FILE = "records.json"
RECIPE_FILE = "recipe.json"
WORK_FOLDER = ".work"
# In the folder of unfinished work: the plan of the build.
STATE_FILE = "state.json"

_STATIC_FEATURES = sorted(feature.name for feature in PRETRAINING_FEATURES)


@dataclasses.dataclass(frozen=True)
class InputFile:
    """A text file or data set that records are made from."""

    path: str
    size: int
    modified_ns: int
    corpus: str = ""
    weight: float = 1.0

    @classmethod
    def of(cls, file: CorpusFile) -> Self:
        """Reads size and time of modification of a file."""
        if file.format == TFDS:
            described = describe(file.path)
            name = f"{PREFIX}{described.name}"
            return cls(name, described.size, 0, file.corpus, file.weight)
        status = pathlib.Path(file.path).stat()
        size, modified = status.st_size, status.st_mtime_ns
        return cls(file.path, size, modified, file.corpus, file.weight)


@dataclasses.dataclass(frozen=True)
class Packing:
    """How full packed records are.

    Attributes:
      sequences: number of sequences in all training records.
      held_out_sequences: number of sequences in all held-out records.
      most_sequences: K, the maximum number of sequences in a record.
      most_predictions: P, the maximum number of masked tokens in a record.
      filled: share of the positions of training records that hold tokens.
    """

    sequences: int
    held_out_sequences: int
    most_sequences: int
    most_predictions: int
    filled: float


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The manifest of a finished folder.

    Attributes:
      vocabulary_digest: digest of the vocabulary.
      inputs: the text files.
      training, held_out: file name, records and bytes of each shard.
      statistics: counts of the corpus and of the training records.
      corpora: statistics of each corpus by name: documents, tokens,
        near_duplicates that were dropped, rate (how often, on average, each
        other document is used) and tokens_taken (counted as often as used);
        empty if every document is used once.
      packing: how full packed records are, or None.
    """

    vocabulary_digest: str
    inputs: tuple[InputFile, ...]
    training: tuple[tuple[str, int, int], ...]
    held_out: tuple[tuple[str, int, int], ...]
    statistics: dict[str, int]
    corpora: dict[str, dict[str, float]] = dataclasses.field(
        default_factory=dict
    )
    packing: Packing | None = None

    def to_json(self) -> str:
        """Returns the content of the manifest file."""
        values = {"format_version": FORMAT_VERSION} | dataclasses.asdict(self)
        return json.dumps(values, indent=1) + "\n"

    def save(self, folder: pathlib.Path) -> None:
        """Writes the manifest, which marks the folder as finished."""
        write_text(folder / MANIFEST_FILE, self.to_json())

    def files(self, folder: pathlib.Path) -> list[RecordFile]:
        """Returns the training files, then the held-out ones."""
        rows = self.training + self.held_out
        return [RecordFile(folder / name, n, size) for name, n, size in rows]

    @classmethod
    def load(cls, folder: pathlib.Path) -> Self:
        """Reads the manifest of a folder.

        Raises:
          UserError: it has another format version, or is damaged.
        """
        path = folder / MANIFEST_FILE
        return cls.from_dict(read_json_object(path), str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], path: str) -> Self:
        """Converts the values of a manifest file; `path` is for errors.

        Raises:
          UserError: see `load`.
        """
        version = values.get("format_version")
        if version != FORMAT_VERSION:
            raise UserError(
                f"{path}: format_version is {version!r}; this program reads "
                f"{FORMAT_VERSION}. Make the records again."
            )
        try:
            training, held_out = (
                tuple((str(n), int(r), int(size)) for n, r, size in values[key])
                for key in ("training", "held_out")
            )
            return cls(
                values["vocabulary_digest"],
                tuple(InputFile(**file) for file in values["inputs"]),
                training,
                held_out,
                dict(values["statistics"]),
                dict(values.get("corpora", {})),
                Packing(**values["packing"]) if values.get("packing") else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path}: damaged manifest ({error!r}); make the records "
                "again, by bert-tf create-pretraining-data --overwrite."
            ) from None


@dataclasses.dataclass(frozen=True)
class RecordFolder:
    """Complete pre-training records.

    Attributes:
      path: the folder, or the glob of the files.
      training_files, held_out_files: the files that hold records.
      max_seq_length: S.
      max_predictions_per_seq: P, the maximum number of masked tokens of a
        record, over all its sequences if packed; S - 1 with next_tokens.
      static: whether the records hold masks; otherwise masks are drawn while
        reading.
      recipe, tokenizer: how the records were made; None for records of
        google-research/bert, which do not store it.
      packing: how full packed records are; None if each record holds one
        sequence.
      next_tokens: whether each token predicts the next one, instead of masks.
    """

    path: str
    training_files: tuple[RecordFile, ...]
    held_out_files: tuple[RecordFile, ...]
    max_seq_length: int
    max_predictions_per_seq: int
    static: bool
    recipe: RecordsRecipe | None
    tokenizer: TokenizerData | None
    packing: Packing | None = None
    next_tokens: bool = False

    @property
    def vocabulary(self) -> TokenTable:
        """The vocabulary of records that have a tokenizer."""
        assert self.tokenizer is not None
        return self.tokenizer.vocabulary

    @property
    def features(self) -> tuple[Feature, ...]:
        """The tensors of a batch."""
        if self.packing is None:
            return PRETRAINING_FEATURES
        return PACKED_PRETRAINING_FEATURES

    @property
    def mean_sequences(self) -> float:
        """Average number of sequences of a training record."""
        if self.packing is None:
            return 1.0
        return self.packing.sequences / max(self.num_records, 1)

    @property
    def num_records(self) -> int:
        """Number of training records."""
        return sum(file.records for file in self.training_files)

    @property
    def num_held_out(self) -> int:
        """Number of held-out records."""
        return sum(file.records for file in self.held_out_files)

    def with_masks(
        self,
        masked_lm_prob: float | None = None,
        mask_token_rate: float | None = None,
        random_token_rate: float | None = None,
        max_predictions_per_seq: int | None = None,
    ) -> Self:
        """Returns the same records with other settings of masks.

        Args:
          masked_lm_prob, mask_token_rate, random_token_rate,
            max_predictions_per_seq: see `RecordsRecipe`; None keeps the
            recipe's value. If only `masked_lm_prob` is given,
            `max_predictions_per_seq` becomes its share of a full sequence.

        Raises:
          UserError: a value is out of its limits, or these records are not
            masked while they are read.
        """
        given: dict[str, Any] = {
            "masked_lm_prob": masked_lm_prob,
            "mask_token_rate": mask_token_rate,
            "random_token_rate": random_token_rate,
            "max_predictions_per_seq": max_predictions_per_seq,
        }
        changes = {n: value for n, value in given.items() if value is not None}
        if not changes:
            return self
        name, value = next(iter(changes.items()))
        if self.static:
            raise UserError(
                f"`{name}`={value}: the masks of {self.path} were drawn when "
                "its records were made; make records without static_masking, "
                "by bert-tf create-pretraining-data."
            )
        if self.next_tokens:
            raise UserError(
                f"`{name}`={value}: left-to-right language modelling predicts "
                "every token and masks none; leave it out."
            )
        assert self.recipe is not None
        recipe = dataclasses.replace(self.recipe, **changes)
        if masked_lm_prob is not None and max_predictions_per_seq is None:
            full = max(1, round(recipe.max_seq_length * masked_lm_prob))
            recipe = dataclasses.replace(recipe, max_predictions_per_seq=full)
        predictions, packing = recipe.max_predictions_per_seq, self.packing
        if packing is not None:
            predictions = packing.most_predictions
            if {"masked_lm_prob", "max_predictions_per_seq"} & changes.keys():
                predictions = most_predictions(recipe, packing.most_sequences)
            packing = dataclasses.replace(packing, most_predictions=predictions)
        return dataclasses.replace(
            self,
            recipe=recipe,
            max_predictions_per_seq=predictions,
            packing=packing,
        )

    def with_next_tokens(self) -> Self:
        """Returns the same records for left-to-right language modelling.

        Batches have no masks: position p predicts the token at p + 1 of the
        same sequence, so P is S - 1, and the last token of a sequence predicts
        nothing. [SEP] is predicted, [CLS] never.

        Raises:
          UserError: the records hold masked tokens.
        """
        if self.static:
            raise UserError(
                f"{self.path}: its records hold masked tokens, which "
                "left-to-right language modelling cannot read; make records "
                "without static_masking, by bert-tf create-pretraining-data."
            )
        return dataclasses.replace(
            self,
            max_predictions_per_seq=self.max_seq_length - 1,
            next_tokens=True,
        )

    @classmethod
    def open(cls, path: str | pathlib.Path) -> Self:
        """Opens a folder of records and checks that it is complete.

        A folder without a manifest, or a glob, is read as TFRecord files in
        the layout of google-research/bert, all of them for training.

        Raises:
          UserError: there are no records, the folder is unfinished, or a file
            is missing, truncated or not a TFRecord file.
        """
        folder = pathlib.Path(path)
        if (folder / MANIFEST_FILE).is_file():
            return cls._open_manifest(folder)
        if (folder / WORK_FOLDER).is_dir():
            raise UserError(
                f"{folder}: the records are unfinished; run "
                "bert-tf create-pretraining-data again with the same flags, it "
                "makes what is missing."
            )
        if folder.is_dir():
            names = list(folder.glob("[!.]*.tfrecord*"))
        else:
            names = list(map(pathlib.Path, glob.glob(str(path))))
        names = sorted(name for name in names if name.is_file())
        if not names:
            raise UserError(
                f"{path}: no pre-training records there; give a folder that "
                "bert-tf create-pretraining-data made, or a folder or glob of "
                "TFRecord files of google-research/bert."
            )
        return cls._open_files(str(path), names)

    @classmethod
    def _open_manifest(cls, folder: pathlib.Path) -> Self:
        manifest = Manifest.load(folder)
        recipe = RecordsRecipe.from_json(folder / RECIPE_FILE)
        tokenizer = read_tokenizer(folder, recipe.lower_case)
        if tokenizer.vocabulary.digest() != manifest.vocabulary_digest:
            raise UserError(
                f"{folder / tokenizer.FILES[0]}: not the vocabulary that the "
                "records were built with; put the original back or make the "
                "records again, by bert-tf create-pretraining-data --overwrite."
            )
        files, num_training = manifest.files(folder), len(manifest.training)
        for file in files:
            file.check()
        packing = manifest.packing
        if recipe.packing != (packing is not None):
            raise UserError(
                f"{folder / MANIFEST_FILE}: not of the records of "
                f"{RECIPE_FILE}, where packing is {recipe.packing}; make the "
                "records again, by bert-tf create-pretraining-data --overwrite."
            )
        return cls(
            str(folder),
            tuple(file for file in files[:num_training] if file.records),
            tuple(file for file in files[num_training:] if file.records),
            recipe.max_seq_length,
            recipe.max_predictions_per_seq
            if packing is None
            else packing.most_predictions,
            recipe.static_masking,
            recipe,
            tokenizer,
            packing,
        )

    @classmethod
    def _open_files(cls, path: str, names: Sequence[pathlib.Path]) -> Self:
        files = [
            RecordFile(name, count_records(name), name.stat().st_size)
            for name in names
        ]
        files = [file for file in files if file.records]
        if not files:
            raise UserError(f"{path}: the record files are empty.")
        lengths_by_file = [
            example_lengths(next(read_records(file.path))) for file in files
        ]
        for file, lengths in zip(files, lengths_by_file, strict=True):
            missing = [n for n in _STATIC_FEATURES if n not in lengths]
            if missing:
                raise UserError(
                    f"{file.path}: its records lack {', '.join(missing)}; "
                    "without a manifest (records.json) the features of "
                    "google-research/bert are expected."
                )
            if lengths != lengths_by_file[0]:
                raise UserError(
                    f"{file.path}: its records are of other lengths than those "
                    f"of {files[0].path}."
                )
        return cls(
            path,
            tuple(files),
            (),
            lengths_by_file[0]["input_ids"],
            lengths_by_file[0]["masked_lm_positions"],
            static=True,
            recipe=None,
            tokenizer=None,
        )
