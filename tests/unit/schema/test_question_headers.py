"""Headers of questions, which ``--describe`` prints: they say what every score means, and the sign of every lag."""

from __future__ import annotations

import re

import pytest

from history.questions.ask import describe
from schema.question_files import Question, questions

_SCORE = re.compile(
    r"score|times_\w+|sigmas\w*|correlation\w*|regularity|stiction_index|shares|covered_percent|pairs|place|"
    r"overlapping|moving_beside|copied|largest_difference|companions|together"
)
_SIGNED = re.compile(r"lag_seconds|seconds_after_start|size|offset|correlation\w*|score|times_limit")
_SIGN = re.compile(r"positive|negative|-1\b")


def columns(question: Question) -> set[str]:
    """Names of the columns of the answer, by what both statements select behind their common table expressions."""
    selects = [sql.rpartition("\n)\nSELECT")[2] for sql in (question.portion, question.finish)]
    names = re.findall(r"\bAS \"?(\w+)\"?|\.(\w+)(?=,|\n| *$)", "\n".join(selects))
    return {one or other for one, other in names}


def paragraphs(question: Question) -> list[str]:
    """Paragraphs of the text before the parameters and behind them."""
    text = re.sub(r"^  \w+ +\S+ +.*$", "", question.header, flags=re.MULTILINE)  # parameters
    return [" ".join(part.split()) for part in text.split("\n\n")]


@pytest.mark.parametrize("name", questions())
def test_header_says_what_scores_mean_and_their_sign(name: str) -> None:
    question = questions()[name]
    for column in columns(question):
        naming = [text for text in paragraphs(question) if re.search(rf"\b{column}\b", text)]
        if _SCORE.fullmatch(column) or _SIGNED.fullmatch(column):
            assert naming, f"the header of {name} does not say what {column} is"
        if _SIGNED.fullmatch(column):
            assert any(map(_SIGN.search, naming)), f"the header of {name} does not say the sign of {column}"
    assert question.header in describe(question)


def test_columns_of_answers_are_known_by_their_sql() -> None:
    """Else the test above would hold nothing."""
    by_name = {name: columns(question) for name, question in questions().items()}
    assert {"lag_seconds", "correlation", "correlation_at_zero", "pairs"} <= by_name["correlation"]
    assert {"lag_seconds", "stiction_index", "regularity"} <= by_name["oscillation"]
    assert "times_limit" in by_name["first_mover"]
    assert {"score", "shares"} <= by_name["departure"]
    for name in ("broken_relation", "change_points", "compare", "episodes", "what_changed"):
        assert "score" in by_name[name], name
    assert {"scale", "offset", "copied"} <= by_name["replayed_signals"]
