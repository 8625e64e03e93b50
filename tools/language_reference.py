"""The demo's text: the language reference that comes with Python."""

import pydoc_data.topics
import re

_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z\"*])")


def reference_documents() -> list[list[str]]:
    """The language reference as documents of sentences.

    Topics quote each other's paragraphs; each paragraph is kept once, so that
    what is held out for evaluation is not also in the training text.
    """
    seen: set[str] = set()
    documents = []
    topics = pydoc_data.topics.topics
    for name in sorted(topics, key=lambda name: (len(topics[name]), name)):
        sentences = []
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            # Indented further than a list item: grammar and program text.
            if paragraph.startswith("      "):
                continue
            # A word divided at its hyphen at the end of a line is one word.
            text = re.sub(r"(?<=\w)-\n\s*", "-", paragraph)
            text = " ".join(text.split())
            if text in seen:
                continue
            seen.add(text)
            if _is_prose(text):
                sentences += _SENTENCE_END.split(text)
        if len(sentences) > 1:
            documents.append(sentences)
    return documents


def _is_prose(text: str) -> bool:
    """Whether a paragraph has a word before a blank and ends a sentence."""
    word = re.search(r"[a-z]{3}", text)
    return word is not None and text[-1] in ".:!?" and " " in text[word.end() :]
