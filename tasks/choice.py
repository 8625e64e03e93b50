"""A file of texts and choices that settings describe.

bert-tf finetune --task=choice --mode=train,eval --train_file=quiz.jsonl \\
    --context_column=question --choice_columns=options --label_column=answer \\
    --model=MODEL --output_dir=out
"""

from bert_tf.finetuning import UserChoiceTask

TASK = UserChoiceTask(name="choice")
