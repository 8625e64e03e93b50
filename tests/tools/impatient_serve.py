"""tools.serve, which waits one second for requests when it ends."""

import runpy

from bert_tf.server import server

server._DRAIN_TIMEOUT = 1.0
runpy.run_module("tools.serve", run_name="__main__", alter_sys=True)
