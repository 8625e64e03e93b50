"""The demo's text: Python's language reference."""

import pydoc_data.topics
import re

_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z\"*])")


def reference_documents() -> list[list[str]]:
    """Returns the language reference as documents of sentences.

    Topics quote each other; each paragraph is kept once, so that held-out text
    is not in the training text.
    """
    seen: set[str] = set()
    documents = []
    topics = pydoc_data.topics.topics
    for name in sorted(topics, key=lambda name: (len(topics[name]), name)):
        sentences = []
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            # Grammar and programs are indented further than list items.
            if paragraph.startswith("      "):
                continue
            # Joins words that are divided at the end of a line.
            text = re.sub(r"(?<=\w)-\n\s*", "-", paragraph)
            text = " ".join(text.split())
            if text in seen:
                continue
            seen.add(text)
            # Prose has a word before a blank, and ends a sentence.
            word = re.search(r"[a-z]{3}", text)
            if word and text[-1] in ".:!?" and " " in text[word.end() :]:
                sentences += _SENTENCE_END.split(text)
        if len(sentences) > 1:
            documents.append(sentences)
    return documents
