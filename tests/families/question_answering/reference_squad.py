"""The rules of google-research/bert's run_squad.py, plainly, for the tests.

Written from the rules with lists and loops: a context is a list of words, each
word a list of pieces, each window a list of positions.
"""

import functools
import json
import math
import pathlib

import reference_tokenization as tokenization

from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.question_answering.squad_files import Answer, Question
from bert_tf.text.tokenizer import BertTokenizer

BLANKS = (" ", "\t", "\r", "\n", "\u202f")
LETTERS = "abcdefghij"
# Words of one piece, and pieces that other words are spelled of.
SMALL = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "?", "-", ".", "'"),
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *("smith", "steve", "cafe", "s", "(", ")"),
)


def span_config(
    max_seq_length=384,
    doc_stride=128,
    max_query_length=64,
    max_answer_length=30,
    n_best_size=20,
    with_null=False,
):
    """How a model answers, by default with the settings of run_squad.py."""
    lengths = (max_seq_length, doc_stride, max_query_length, max_answer_length)
    return QuestionAnsweringConfig("q", (), *lengths, n_best_size, with_null)


def split(context):
    """The words of a context and, for each character, the word at it."""
    words, places, in_word = [], [], False
    for char in context:
        if char in BLANKS:
            in_word = False
        elif in_word:
            words[-1] += char
        else:
            words.append(char)
            in_word = True
        places.append(len(words) - 1)
    return words, places


class Reference:
    """Everything for one vocabulary and casing."""

    def __init__(self, tokens, lower_case):
        self.vocabulary = {token: i for i, token in enumerate(tokens)}
        self.tokens = list(tokens)
        self.lower_case = lower_case
        self.pieces = functools.cache(self.pieces)
        self.normal_words = functools.cache(self.normal_words)

    def pieces(self, text):
        found = tokenization.tokenize(text, self.vocabulary, self.lower_case)
        return [token.text for token in found]

    def normal_words(self, text):
        """What BasicTokenizer makes of a text."""
        characters = tokenization.normalized(text, self.lower_case)
        return [
            "".join(characters[place][0] for place in word)
            for word in tokenization.words(characters)
        ]

    def windows(self, question, length, stride, query_length):
        """The windows of a question, as dicts."""
        words, places = split(question.context)
        pieces, word_of_piece, first_piece = [], [], []
        for number, word in enumerate(words):
            first_piece.append(len(pieces))
            for piece in self.pieces(word):
                pieces.append(piece)
                word_of_piece.append(number)
        first_piece.append(len(pieces))
        asked = self.pieces(question.question)[:query_length]
        target = self._target(question, words, places, pieces, first_piece)
        spans, start = [], 0
        while start < len(pieces):
            size = min(len(pieces) - start, length - len(asked) - 3)
            spans.append((start, size))
            if start + size == len(pieces):
                break
            start += min(size, stride)
        found = []
        for number, (start, size) in enumerate(spans):
            shown = pieces[start : start + size]
            row = ["[CLS]", *asked, "[SEP]", *shown, "[SEP]"]
            before = len(asked) + 2
            window = {
                "tokens": row,
                "ids": [self.vocabulary[piece] for piece in row],
                "first": before,
                "words": {
                    before + i: word_of_piece[start + i] for i in range(size)
                },
                "owned": [
                    before + i
                    for i in range(size)
                    if best_window(spans, start + i) == number
                ],
                "target": (0, 0),
            }
            if target and start <= target[0] and target[1] < start + size:
                window["target"] = tuple(t - start + before for t in target)
            found.append(window)
        return words, found

    def _target(self, question, words, places, pieces, first_piece):
        if not question.answers:
            return None
        text, start, _ = question.answers[0]
        first = first_piece[places[start]]
        last = first_piece[places[start + len(text) - 1] + 1] - 1
        own = self.pieces(text)
        for low in range(first, last + 1):
            for high in range(last, low - 1, -1):
                if pieces[low : high + 1] == own:
                    return low, high
        return first, last

    def final_text(self, predicted, original):
        """The part of the original that a predicted text stands for."""
        normal = " ".join(self.normal_words(original))
        at = normal.find(predicted)
        solid = [i for i, c in enumerate(original) if c != " "]
        normal_solid = [i for i, c in enumerate(normal) if c != " "]
        if at < 0 or len(solid) != len(normal_solid):
            return original
        ends = at, at + len(predicted) - 1
        if not set(ends) <= set(normal_solid):
            return original
        low, high = (solid[normal_solid.index(end)] for end in ends)
        return original[low : high + 1]

    def text_of(self, words, window, first, last):
        """The answer that positions of a window stand for."""
        spelled = " ".join(window["tokens"][first : last + 1])
        spelled = spelled.replace(" ##", "").replace("##", "")
        of_words = words[window["words"][first] : window["words"][last] + 1]
        return self.final_text(" ".join(spelled.split()), " ".join(of_words))

    def decode(self, question, logits, settings, n_best, longest, with_null):
        """The best answers and the null odds of one question.

        Logits: for each window its start and end logits.
        """
        words, windows = self.windows(question, *settings)
        candidates, nulls = [], []
        for window, (starts, ends) in zip(windows, logits, strict=True):
            nulls.append((starts[0] + ends[0], starts[0], ends[0]))
            for i in highest(starts, n_best):
                for j in highest(ends, n_best):
                    if i not in window["owned"] or j not in window["words"]:
                        continue
                    if i <= j < i + longest:
                        score = starts[i], ends[j]
                        candidates.append((score, window, i, j))
        if with_null:
            null = min(nulls, key=lambda entry: entry[0])
            candidates.append((null[1:], None, 0, 0))
        candidates.sort(key=lambda entry: -sum(entry[0]))
        best = []
        for score, window, i, j in candidates:
            if len(best) == n_best:
                break
            text = self.text_of(words, window, i, j) if window else ""
            if text not in [known for known, _ in best]:
                best.append((text, score))
        if with_null and "" not in [text for text, _ in best]:
            best.append(("", null[1:]))
        if not best:
            best = [("empty", (0.0, 0.0))]
        total = sum(math.exp(sum(score)) for _, score in best)
        shares = [math.exp(sum(score)) / total for _, score in best]
        filled = [sum(score) for text, score in best if text]
        odds = null[0] - filled[0] if with_null and filled else None
        return best, shares, odds


def best_window(spans, position):
    """The window that shows a token in most context, the first of equals."""
    worth = {}
    for number, (start, size) in enumerate(spans):
        if start <= position < start + size:
            around = min(position - start, start + size - 1 - position)
            worth[number] = around + 0.01 * size
    return max(worth, key=worth.get)


def highest(logits, count):
    """The places of the highest logits, the first of equals first."""
    order = sorted(range(len(logits)), key=lambda i: -logits[i])
    return order[:count]


def question(context, text="who ?", answer=None, identifier="q"):
    """A question with the first occurrence of an answer."""
    answers = ()
    if answer is not None:
        answers = (Answer(answer, context.index(answer)),)
    return Question(identifier, "", text, context, answers, not answers)


def squad_json(*questions, version="1.1"):
    """The content of a file, a paragraph for each question."""
    paragraphs = [
        {
            "context": q.context,
            "qas": [
                {
                    "id": q.identifier,
                    "question": q.question,
                    "answers": [
                        {"text": a.text, "answer_start": a.start}
                        for a in q.answers
                    ],
                }
            ],
        }
        for q in questions
    ]
    data = [{"title": "T", "paragraphs": paragraphs}]
    return {"version": version, "data": data}


def written(folder, content, name="squad.json"):
    """Writes a file, JSON unless it is text, and gives its path."""
    path = pathlib.Path(folder) / name
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return str(path)


def tools(lower_case=True, tokens=SMALL):
    """The product's tokenizer and the reference, of one vocabulary.

    Files of tests share them, since a tokenizer takes seconds to trace.
    """
    return _tools(lower_case, tuple(tokens))


@functools.cache
def _tools(lower_case, tokens):
    return BertTokenizer(tokens, lower_case), Reference(tokens, lower_case)
