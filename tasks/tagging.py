"""Your own CoNLL-style files, described by settings alone.

python -m tools.run_finetuning --task=tagging --mode=train,eval \\
    --set train_file=train.conll --set dev_file=dev.conll \\
    --set token_column=0 --set tag_column=-1 --init_from=MODEL --output_dir=out

Tags have the prefixes of IOB1, IOB2, IOBES, BILOU or BMES, or none, as parts of
speech: each is a label then, and f1 is that of runs of words with one label.
"""

from bert_tf.finetuning import UserTokenClassificationTask

TASK = UserTokenClassificationTask(name="tagging")
