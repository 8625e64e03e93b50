"""Models that do not train all weights of their layers."""

import abc
from collections.abc import Sequence

import keras


class PartlyTrained(keras.Model):
    """A model with exceptions from its trainable weights.

    It does not set `trainable` of its layers, which may be part of another
    model that trains them.
    """

    @abc.abstractmethod
    def untrained(self) -> Sequence[keras.Variable]:
        """The trainable weights of its layers that are not trained."""

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        """The trainable variables without `untrained`."""
        return self._trained(super().trainable_variables)

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        """The trainable weights without `untrained`."""
        return self._trained(super().trainable_weights)

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        """The other variables, including `untrained`."""
        trained = set(map(id, self.trainable_variables))
        return [v for v in self.variables if id(v) not in trained]

    @property
    def non_trainable_weights(self) -> list[keras.Variable]:
        """The other weights, including `untrained`."""
        trained = set(map(id, self.trainable_weights))
        return [w for w in self.weights if id(w) not in trained]

    def _trained(
        self, variables: Sequence[keras.Variable]
    ) -> list[keras.Variable]:
        untrained = set(map(id, self.untrained()))
        return [v for v in variables if id(v) not in untrained]
