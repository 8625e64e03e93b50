"""Your own questions on texts, described by settings alone.

python -m tools.run_finetuning --task=questions --mode=train,eval \\
    --set train_file=faq.csv --set context_column=text \\
    --init_from=MODEL --output_dir=out
"""

from bert_tf.finetuning import UserQuestionAnsweringTask

TASK = UserQuestionAnsweringTask(name="questions")
