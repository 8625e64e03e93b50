"""A file of texts or pairs that settings describe.

bert-tf finetune --task=sentence --mode=train,eval \\
    --set train_file=reviews.csv --set text_columns=text \\
    --set label_column=stars --init_from=MODEL --output_dir=out
"""

from bert_tf.finetuning import UserFileTask

TASK = UserFileTask(name="sentence")
