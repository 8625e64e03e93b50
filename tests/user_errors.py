"""The error line of a mistake of the user's."""

from collections.abc import Callable
from typing import Any

import pytest

from bert_tf.errors import UserError


def error_of(call: Callable, *arguments: Any, **settings: Any) -> str:
    """Returns the one line of the `UserError` that a call raises."""
    with pytest.raises(UserError) as caught:
        call(*arguments, **settings)
    line = str(caught.value)
    assert "\n" not in line
    return line
