from tools.language_reference import reference_documents


def test_the_reference_as_documents_of_sentences():
    documents = reference_documents()
    assert documents == reference_documents()
    assert len(documents) > 50
    sentences = [s for document in documents for s in document]
    assert len(sentences) > 2000
    assert sum(map(len, sentences)) > 200_000
    # Topics quote each other; what one holds out must not be in another.
    long = [s for s in sentences if len(s) > 120]
    assert len(set(long)) > 0.99 * len(long)
    for sentence in sentences:
        assert sentence == " ".join(sentence.split())
        assert sentence
