"""What is loaded of a SavedModel."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.server.loaded_model import LoadedModel, LoadError


@pytest.mark.parametrize("tags", [("serve",), ("gpu",)])
def test_the_graph_decides_about_shapes_whatever_its_tags(tags, tmp_path):
    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(str(tmp_path / "1"))
    with v1.Session(graph=tf.Graph()) as session:
        x = v1.placeholder(tf.float32, [None], "x")
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": 2 * x})
        builder.add_meta_graph_and_variables(
            session, list(tags), {"serving_default": signature}
        )
        builder.save()
    loaded = LoadedModel(tmp_path / "1", v1.ConfigProto(), tags)
    matrix = np.ones((2, 3), np.float32)
    answer = loaded.signature("").run({"x": matrix})
    np.testing.assert_array_equal(answer["y"], 2 * matrix)
    loaded.close()


def test_tags_choose_the_graph(versions):
    session = tf.compat.v1.ConfigProto()
    with pytest.raises(LoadError, match="gpu"):
        LoadedModel(versions / "1", session, ("serve", "gpu"))
