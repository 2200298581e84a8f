"""Each term of docs/glossary.md stands in its place, in few words, with a link."""

import re

import pytest

from tests.edge.documents import rows, text_of

DOCUMENT = "docs/glossary.md"
TERMS = rows(text_of(DOCUMENT))
MOST_SENTENCES = 2
MOST_WORDS = 20


def test_the_terms_are_in_alphabetical_order():
    terms = [re.sub(r"[^\w ]", "", term).casefold() for term, _, _ in TERMS]
    assert terms == sorted(terms)
    assert len(set(terms)) == len(terms) > 80


@pytest.mark.parametrize(("term", "meaning", "page"), TERMS, ids=[term for term, _, _ in TERMS])
def test_a_term_is_explained_in_two_short_sentences_and_leads_to_a_page(term, meaning, page):
    sentences = re.split(r"(?<=[a-z)`0-9]\.) (?=[A-Z`])", meaning)
    assert len(sentences) <= MOST_SENTENCES
    assert max(len(sentence.split()) for sentence in sentences) <= MOST_WORDS, sentences
    assert meaning.endswith(".")
    assert re.fullmatch(r"\[[^\]]+\]\([^)]+\)", page), term
