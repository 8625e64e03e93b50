"""Names of labels: what is read and written."""

import dataclasses
import json

import pytest
from test_folder import CONFIG, arrays

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.errors import UserError

LABELLED = Checkpoint(
    dataclasses.replace(CONFIG, causal=False),
    arrays("pooler", "classifier", labels=3),
    labels=("no", "maybe", "yes"),
)


@pytest.mark.parametrize("to", ["bert_tf", "google_tf1"])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["no", "yes"], "names 2 labels, but its head has 3"),
        (["no", "yes", "no"], "labels.json: the label 'no' occurs twice"),
        (["no", "yes", "\ud800"], "labels.json: label 2 is .*no text"),
    ],
)
def test_labels_that_do_not_fit(to, labels, message, tmp_path):
    save_checkpoint(tmp_path, LABELLED, to=to)
    assert load_checkpoint(tmp_path).labels == LABELLED.labels
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    with pytest.raises(UserError, match=message):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("to", ["bert_tf", "google_tf1", "hugging_face"])
def test_labels_are_told_apart(to, tmp_path):
    wrong = dataclasses.replace(LABELLED, labels=("no", "yes", "no"))
    with pytest.raises(UserError, match="the label 'no' occurs twice"):
        save_checkpoint(tmp_path / "new", wrong, to=to)
    assert list(tmp_path.iterdir()) == []


def test_labels_without_a_head(tmp_path):
    save_checkpoint(tmp_path, Checkpoint(CONFIG, arrays()))
    (tmp_path / "labels.json").write_text('["no"]')
    with pytest.raises(UserError, match="has no head for labels"):
        load_checkpoint(tmp_path)
