"""Fine-tunes on questions of one's own in memory, and asks some.

python examples/questions.py MODEL
"""

import sys

import bert_tf

FERRY = "The ferry leaves at seven. Anna Larsen has sold tickets since 1998."
LIGHT = "The lighthouse was built in 1854 after the wreck of the Margaret."
# Each answer stands in its text; an empty one says that there is none.
QUESTIONS = {
    "question": [
        "When does the ferry leave?",
        "Who sells tickets?",
        "When was the lighthouse built?",
        "Who built the lighthouse?",
    ],
    "context": [FERRY, FERRY, LIGHT, LIGHT],
    "answer": ["at seven", "Anna Larsen", "1854", ""],
}

run = bert_tf.finetune(
    sys.argv[1],
    QUESTIONS,
    dev=QUESTIONS,
    task="questions",
    output_dir="out/questions",
    num_train_epochs=3,
    train_batch_size=2,
    with_null=True,
)
answer = run.model(question="When does it leave?", context=FERRY)
print(answer["answer"], answer["start"], answer["no_answer_probability"])
