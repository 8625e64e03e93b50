"""Files of tagged words in the style of CoNLL that settings describe.

bert-tf finetune --task=tagging --mode=train,eval \\
    --set train_file=train.conll --set dev_file=dev.conll \\
    --set token_column=0 --set tag_column=-1 --init_from=MODEL --output_dir=out

Tags have the prefixes of IOB1, IOB2, IOBES, BILOU or BMES. Tags without
prefixes, such as parts of speech, are labels, and f1 is computed over runs of
words with the same label.
"""

from bert_tf.finetuning import UserTokenClassificationTask

TASK = UserTokenClassificationTask(name="tagging")
