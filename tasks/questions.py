"""Files of questions on contexts that settings describe.

bert-tf finetune --task=questions --mode=train,eval --train_file=faq.csv \\
    --context_column=text --model=MODEL --output_dir=out

A .json file has the format of SQuAD, or is a list of questions with contexts
and answers as in the data sets of huggingface.co; for JSON lines of the latter
pass --answer_column=answers.
"""

from bert_tf.finetuning import UserQuestionAnsweringTask

TASK = UserQuestionAnsweringTask(name="questions")
