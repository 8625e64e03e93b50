"""Replays the requests that are stored with a model before it serves."""

import asyncio
import pathlib
import time

import grpc
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.server.loaded_model import LoadError
from bert_tf.server.metrics import Metrics
from bert_tf.server.prediction import Predictor
from bert_tf.server.status import request_error
from bert_tf.server.versions import Version

WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
# TF Serving's saved_model_warmup_util.h has the same limit.
_MOST_RECORDS = 1000


def _records(path: pathlib.Path) -> list[bytes]:
    records = tf.data.TFRecordDataset(str(path)).take(_MOST_RECORDS + 1)
    return list(records.as_numpy_iterator())


async def warm_up(
    version: Version, metrics: Metrics, max_request_bytes: int
) -> None:
    """Runs the stored requests, if any.

    Args:
      version: of which model.
      metrics: told of it.
      max_request_bytes: what a request may hold, and stand for.

    Raises:
      LoadError: the file is damaged, or a request fails.
    """
    path = version.folder / WARM_UP_FILE
    if not path.is_file():
        return
    predictor = Predictor(metrics, max_request_bytes)
    start = time.monotonic()
    status, count = grpc.StatusCode.OK, 0
    try:
        for record in await asyncio.to_thread(_records, path):
            if count == _MOST_RECORDS:
                raise LoadError(f"more than {_MOST_RECORDS} requests")
            log = prediction_log_pb2.PredictionLog.FromString(record)
            await predictor.replay(version, log)
            count += 1
    except (LoadError, DecodeError) as error:
        status = grpc.StatusCode.INVALID_ARGUMENT
        raise LoadError(f"{path}: request {count}: {error}") from error
    except Exception as error:
        failure = request_error(error)
        status = failure.code
        raise LoadError(
            f"{path}: request {count}: {failure.message}"
        ) from error
    finally:
        seconds = time.monotonic() - start
        metrics.warm_up(str(version.folder), status.name, count, seconds)
