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
# Tasks on a user's data: the name, and the class in
# `bert_tf.families`.
USER_TASKS = {
    "sentence": "text_classification.kinds.UserFileTask",
    "choice": "multiple_choice.task.UserChoiceTask",
    "embedding": "sentence_embedding.task.UserEmbeddingTask",
    "ranking": "text_classification.ranking.UserRankingTask",
    "questions": "question_answering.user_questions.UserQuestionAnsweringTask",
    "tagging": "token_classification.task.UserTokenClassificationTask",
}
