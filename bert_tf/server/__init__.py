"""A server of SavedModels that speaks TF Serving's REST and gRPC."""

from bert_tf.extras import require_extra

require_extra("serve", "the server")
