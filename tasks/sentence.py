"""A file of texts or pairs that settings describe.

bert-tf finetune --task=sentence --mode=train,eval --train_file=reviews.csv \\
    --text_columns=text --label_column=stars --model=MODEL --output_dir=out
"""

from bert_tf.finetuning import UserFileTask

TASK = UserFileTask(name="sentence")
