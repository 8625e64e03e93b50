"""Texts on which TF Text's own rules and BERT's part ways."""

CHECK_TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "##a", "b", "##b", "A", "e", "##e", "é", "##é", "i", "σ", "##σ"),
    *("##ς", "中", "!", "[", "]", "\u1100", "##\u1161"),
    *("\u302e", "##\u302e", "\U00016ff0", "##\U00016ff0"),
)

# A text, its tokens when lower-cased, and its tokens as it is.
CHECKS = (
    ("Ab", "a ##b", "A ##b"),
    ("a\tb\r\na", "a b a", "a b a"),
    # Accents go, composed or apart, and only in lower case.
    ("É", "e", "[UNK]"),
    ("e\u0301!", "e !", "[UNK] !"),
    # Control and format characters go without a trace.
    ("a\x01b", "a ##b", "a ##b"),
    ("a\x00b\ufffd", "a ##b", "a ##b"),
    ("a\u200bb\u00ad", "a ##b", "a ##b"),
    # Every blank separates; U+0085 is a control character.
    ("a\u00a0b\u3000a\u2028b\u0085a", "a b a b ##a", "a b a b ##a"),
    # No compatibility folding: sharp s, a ligature, an ellipsis, a wide A.
    ("ß \ufb01", "[UNK] [UNK]", "[UNK] [UNK]"),
    ("\u2026 \uff21", "[UNK] [UNK]", "[UNK] [UNK]"),
    # A capital sigma is final after a letter, unless a letter follows.
    ("aΣ aΣa Σ", "a ##ς a ##σ ##a σ", "[UNK] [UNK] [UNK]"),
    ("a\u0301Σ\u200d!", "a ##ς !", "[UNK] !"),
    ("\u0130", "i", "[UNK]"),
    # Hangul falls into its letters; marks that stay are put in order.
    ("\uac00", "\u1100 ##\u1161", "[UNK]"),
    ("\u302e\U00016ff0", "\U00016ff0 ##\u302e", "\u302e ##\U00016ff0"),
    # Ideographs and punctuation stand alone, so no text is a special token.
    ("a中b![A]", "a 中 b ! [ a ]", "a 中 b ! [ A ]"),
    # An unassigned character belongs to its word.
    ("a\U000e0fffb", "[UNK]", "[UNK]"),
    # The limit of a word is 200 characters, not bytes.
    ("a" * 200, "a" + 199 * " ##a", "a" + 199 * " ##a"),
    ("b" + "a" * 200, "[UNK]", "[UNK]"),
    ("é" * 200, "e" + 199 * " ##e", "é" + 199 * " ##é"),
    ("é" * 201 + "!", "[UNK] !", "[UNK] !"),
)
