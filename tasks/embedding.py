"""Vectors of texts from a file of pairs, triplets, scores or texts alone.

bert-tf finetune --task=embedding --mode=train,eval --train_file=pairs.csv \\
    --model=MODEL --output_dir=out
"""

from bert_tf.finetuning import UserEmbeddingTask

TASK = UserEmbeddingTask(name="embedding")
