"""What has no public way: each private name here alone, with its versions."""

import keras


def symbolic_outputs(layer: keras.layers.Layer) -> list[list]:
    """The outputs of each call of a layer on Keras inputs, as flat lists.

    `keras.Operation._inbound_nodes` and their `outputs`, as in Keras 3.15.1;
    the public `output` is that of the first call alone.
    """
    return [node.outputs for node in layer._inbound_nodes]
