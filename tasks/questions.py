"""Your own questions on texts, described by settings alone.

python -m tools.run_finetuning --task=questions --mode=train,eval \\
    --set train_file=faq.csv --set context_column=text \\
    --init_from=MODEL --output_dir=out

A file that ends in .json is laid out as SQuAD's, or as a list of questions with
their contexts and answers, as the data sets of huggingface.co are; for JSON
lines of these pass --set answer_column=answers.
"""

from bert_tf.finetuning import UserQuestionAnsweringTask

TASK = UserQuestionAnsweringTask(name="questions")
