"""The list of the families of tasks."""

# The head of a family's models in a checkpoint, and its config in
# `bert_tf.families`. Heads that other programs know are in the tables of the
# architectures; see `checkpoints/layout.py` for the others.
FAMILIES = {
    "classifier": "text_classification.config.TextClassificationConfig",
    "span": "question_answering.config.QuestionAnsweringConfig",
    "token_classifier": "token_classification.config.TokenClassificationConfig",
    "multiple_choice": "multiple_choice.config.MultipleChoiceConfig",
}
