"""Models that leave some of their weights as they are."""

import abc
from collections.abc import Sequence

import keras


class PartlyTrained(keras.Model):
    """A model that trains all of its trainable weights but a few.

    Not by `trainable` of its layers: they may become part of a model that does
    train them.
    """

    @abc.abstractmethod
    def untrained(self) -> Sequence[keras.Variable]:
        """The trainable weights of its layers that it does not train."""

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        """Without those that it does not train."""
        return self._trained(super().trainable_variables)

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        """Without those that it does not train."""
        return self._trained(super().trainable_weights)

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        """With those that it does not train."""
        trained = set(map(id, self.trainable_variables))
        return [v for v in self.variables if id(v) not in trained]

    @property
    def non_trainable_weights(self) -> list[keras.Variable]:
        """With those that it does not train."""
        trained = set(map(id, self.trainable_weights))
        return [w for w in self.weights if id(w) not in trained]

    def _trained(
        self, variables: Sequence[keras.Variable]
    ) -> list[keras.Variable]:
        left_out = set(map(id, self.untrained()))
        return [v for v in variables if id(v) not in left_out]
