"""A server of SavedModels that speaks TF Serving's REST and gRPC."""

from bert_tf.libraries import require_extra

require_extra("serve", "the server")
