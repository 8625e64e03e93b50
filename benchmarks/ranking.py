"""1,000 documents ranked for a query, beside sentence-transformers.

MiniLM's encoder (6 layers of 384) with a random head is a cross-encoder that
`LoadedModel.rank` and `CrossEncoder.rank` read from one folder. The documents
are the first paragraphs of SQuAD 1.1's dev set, so most rows are longer than
128 tokens. Both sort by length, count from strings to ranked dictionaries, and
take turns. Equality is the largest difference of a score to those of
sentence-transformers in float32.

python -m benchmarks.ranking --peers=.venv-peers/bin/python \\
    --model=MINILM --data=../shared/data/squad/dev-v1.1.json
"""

import dataclasses
import functools
import json
import pathlib
import statistics
import tempfile

import numpy as np
from absl import flags

from benchmarks.comparison import (
    Peer,
    seconds_in_turns,
    show_machine,
    spread,
    threads,
)
from bert_tf.files import write_text
from bert_tf.side_by_side import one_core_a_batch
from tools import command_line

_PEERS = flags.DEFINE_string("peers", None, "Python of peers.", required=True)
_MODEL = flags.DEFINE_string("model", None, "MiniLM.", required=True)
_DATA = flags.DEFINE_string("data", None, "SQuAD's dev set.", required=True)
_DOCUMENTS = flags.DEFINE_integer("documents", 1000, "Documents to rank.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds of each row.")

_PEER = "benchmarks/ranking_sentence_transformers.py"
_OURS = {
    "bert_tf, Keras, float32": {},
    "bert_tf, Keras, bfloat16": {"precision": "mixed_bfloat16"},
    "bert_tf, OpenVINO, float32": {"runtime": "openvino"},
}
_REFERENCE = "sentence-transformers, float32"


def cross_encoder(source: str, folder: pathlib.Path) -> pathlib.Path:
    """Writes a cross-encoder with the encoder of a folder."""
    import keras

    import bert_tf
    from bert_tf.checkpoints.sentence_files import write_cross_encoder

    keras.utils.set_random_seed(0)
    model = bert_tf.bert_classifier(bert_tf.load_encoder(source), 1)
    checkpoint = dataclasses.replace(
        bert_tf.load_checkpoint(source), arrays=bert_tf.model_arrays(model)
    )
    bert_tf.save_checkpoint(folder, checkpoint, "hugging_face")
    write_cross_encoder(folder, "sigmoid")
    return folder


def main() -> None:
    """Prints the table."""
    one_core_a_batch()
    import bert_tf
    from bert_tf.inference.retrieval_data import read_retrieval

    show_machine("benchmarks.ranking", "tensorflow", "keras")
    data = read_retrieval(_DATA.value)
    documents = [text for _, text in data.corpus()][: _DOCUMENTS.value]
    query = data.queries[0]
    works, found = {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = cross_encoder(_MODEL.value, pathlib.Path(temporary, "model"))
        texts = pathlib.Path(temporary, "texts.json")
        write_text(texts, json.dumps([query, *documents]))
        peer = Peer(
            _PEERS.value, _PEER, str(folder), str(texts), str(threads())
        )

        def ours(name, model):
            ranking = model.rank(query, documents)
            scores = {each["corpus_id"]: each["score"] for each in ranking}
            found[name] = [scores[n] for n in range(len(documents))]

        def theirs(name, precision):
            answer = peer.ask(precision)
            found[name] = answer["scores"]
            return answer["seconds"]

        for name, settings in _OURS.items():
            model = bert_tf.load(folder, **settings)
            works[name] = functools.partial(ours, name, model)
        for precision in peer.said["names"]:
            name = f"sentence-transformers, {precision}"
            works[name] = functools.partial(theirs, name, precision)
        for work in works.values():
            work()
        times = seconds_in_turns(works, _ROUNDS.value)
        peer.close()
    expected = np.array(found[_REFERENCE])
    reference = statistics.mean(times[_REFERENCE])
    for name, seconds in times.items():
        rates = [len(documents) / each for each in seconds]
        ratio = reference / statistics.mean(seconds)
        largest = np.abs(np.array(found[name]) - expected).max()
        print(
            f"{name:32} {spread(rates):>14} documents/s  {ratio:5.2f}x  "
            f"largest difference {largest:.1e}"
        )


if __name__ == "__main__":
    command_line.run(main)
