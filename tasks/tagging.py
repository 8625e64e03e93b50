"""Files of tagged words in the style of CoNLL that settings describe.

bert-tf finetune --task=tagging --mode=train,eval --train_file=train.conll \\
    --dev_file=dev.conll --token_column=0 --tag_column=-1 --model=MODEL \\
    --output_dir=out

Tags have the prefixes of IOB1, IOB2, IOBES, BILOU or BMES. Tags without
prefixes, such as parts of speech, are labels, and f1 is computed over runs of
words with the same label.
"""

from bert_tf.finetuning import UserTokenClassificationTask

TASK = UserTokenClassificationTask(name="tagging")
