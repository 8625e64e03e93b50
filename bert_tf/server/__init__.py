"""A server of SavedModels that speaks TF Serving's REST and gRPC."""
