"""A file of texts and choices that settings describe.

bert-tf finetune --task=choice --mode=train,eval --set train_file=quiz.jsonl \\
    --set context_column=question --set choice_columns=options \\
    --set label_column=answer --init_from=MODEL --output_dir=out
"""

from bert_tf.finetuning import UserChoiceTask

TASK = UserChoiceTask(name="choice")
