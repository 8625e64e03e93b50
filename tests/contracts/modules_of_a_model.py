"""Loads the encoder of a folder, and prints the modules of bert_tf."""

import sys

import bert_tf

if __name__ == "__main__":
    bert_tf.load_encoder(sys.argv[1])
    print(*(name for name in sys.modules if name.startswith("bert_tf.")))
