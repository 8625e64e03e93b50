"""The one list of families of tasks."""

# The head of a checkpoint that the models of a family have, and the class in
# `bert_tf.families` of how they are used. The architectures' tables have the
# heads that other programs know; see `checkpoints/layout.py` for the others.
FAMILIES = {
    "classifier": "text_classification.config.TextClassificationConfig",
    "span": "question_answering.config.QuestionAnsweringConfig",
    "token_classifier": "token_classification.config.TokenClassificationConfig",
    "multiple_choice": "multiple_choice.config.MultipleChoiceConfig",
}
