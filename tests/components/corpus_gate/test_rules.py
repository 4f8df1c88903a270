"""Each rule at the edge of its threshold; severities; the words of a report."""

import collections
import json

import pytest

from components.corpus_gate import report
from components.corpus_gate.counting import Facts, SplitFacts
from components.corpus_gate.rules import RULES, judge


def split_of(count, **offending):
    return SplitFacts(
        num_documents=count,
        num_characters=100_000,
        length_histogram=collections.Counter({3: count}),
        documents_by_source=collections.Counter({"web": count}),
        num_offending=collections.Counter(offending),
        offenders={offence: [f"{offence}-1"] for offence in offending},
    )


def facts_with(train=100, held_out=50, offending=None, **totals):
    return Facts(splits={"train": split_of(train, **(offending or {})), "eval": split_of(held_out)}, **totals)


NOTHING = {"schema_anomalies": [], "drift": [], "skew": []}


def broken(facts, findings=NOTHING, settings=None):
    return {rule.name: rule.severity for rule in judge(facts, findings, settings or {}) if not rule.passed}


def test_a_good_corpus_breaks_no_rule():
    judged = judge(facts_with(), NOTHING, {})
    assert [rule.name for rule in judged] == list(RULES)
    assert report.passed(judged) and all(rule.passed for rule in judged)


@pytest.mark.parametrize(
    ("facts", "findings", "expected"),
    [
        (facts_with(offending={"nul": 1}), NOTHING, {"nul": "block"}),
        (facts_with(offending={"empty": 1}), NOTHING, {"empty": "block"}),
        (facts_with(offending={"invalid_utf8": 2}), NOTHING, {"invalid_utf8": "block"}),
        (facts_with(offending={"overlong": 1}), NOTHING, {"overlong": "block"}),
        (facts_with(num_duplicate_ids=1), NOTHING, {"duplicate_ids": "block"}),
        (facts_with(num_duplicates=7), NOTHING, {}),  # 7 of 150: less than 5 %
        (facts_with(num_duplicates=8), NOTHING, {"duplicates": "warn"}),
        (facts_with(held_out=100, num_leaked=1), NOTHING, {}),
        (facts_with(held_out=99, num_leaked=1), NOTHING, {"leakage": "block"}),
        (facts_with(train=8, held_out=2), NOTHING, {}),
        (facts_with(train=7, held_out=2), NOTHING, {"num_documents": "block"}),
        (facts_with(held_out=1), NOTHING, {"num_eval_documents": "block"}),
        (facts_with(), {**NOTHING, "schema_anomalies": ["train, text: gone"]}, {"schema_anomalies": "block"}),
        (facts_with(), {**NOTHING, "drift": ["source: moved"]}, {"drift": "warn"}),
        (facts_with(), {**NOTHING, "skew": ["source: moved"]}, {"skew": "warn"}),
    ],
)
def test_each_rule_is_broken_where_it_should_be(facts, findings, expected):
    assert broken(facts, findings) == expected


def test_replacement_characters_are_a_share_of_all():
    facts = facts_with()
    facts.splits["train"].num_replacement_characters = 20  # of 200,000
    assert broken(facts) == {}
    facts.splits["train"].num_replacement_characters = 21
    assert broken(facts) == {"replacement_characters": "warn"}


def test_a_corpus_without_an_eval_split_is_blocked():
    assert broken(Facts(splits={"train": split_of(100)})) == {"num_eval_documents": "block"}
    assert set(broken(Facts(splits={}))) == {"num_documents", "num_eval_documents"}


def test_settings_move_thresholds_and_severities():
    facts = facts_with(offending={"nul": 3})
    assert broken(facts, settings={"nul": {"threshold": 3}}) == {}
    assert broken(facts, settings={"nul": {"severity": "warn"}}) == {"nul": "warn"}
    assert broken(facts, settings={"nul": {"severity": "off"}}) == {}
    judged = judge(facts, NOTHING, {"nul": {"severity": "warn"}})
    assert report.passed(judged)


def test_a_broken_rule_says_what_was_found_and_where():
    (nul,) = [rule for rule in judge(facts_with(offending={"nul": 3}), NOTHING, {}) if not rule.passed]
    assert nul.in_words() == "nul: 3 is above 0 (documents that hold a NUL character): nul-1"
    (few,) = [rule for rule in judge(facts_with(held_out=1), NOTHING, {}) if not rule.passed]
    assert few.in_words() == "num_eval_documents: 1 is below 2 (documents held out for evaluation)"


def test_hostile_names_stay_text_on_the_page():
    hostile = '"><script>alert(1)</script>&'
    facts = facts_with(offending={"nul": 1})
    facts.splits["train"].offenders["nul"] = [hostile]
    facts.splits["train"].documents_by_source[hostile] = 3
    judged = judge(facts, NOTHING, {})
    page = report.as_html(hostile, 4, facts, judged)
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;&amp;") == 4  # title, heading, document, source
    parsed = json.loads(report.as_json(4, facts, judged))
    assert parsed["passed"] is False
    assert parsed["splits"]["train"]["offenders"]["nul"] == [hostile]


def test_the_same_facts_give_the_same_bytes():
    first, second = facts_with(), facts_with()
    for number in range(40):
        first.splits["train"].documents_by_source[f"s{number:02d}"] = number
        second.splits["train"].documents_by_source[f"s{39 - number:02d}"] = 39 - number
    for write in (report.as_json, lambda *arguments: report.as_html("t", *arguments)):
        assert write(1, first, judge(first, NOTHING, {})) == write(1, second, judge(second, NOTHING, {}))
    page = report.as_html("t", 1, first, judge(first, NOTHING, {}))
    assert "11 others" in page  # 41 sources, of which 30 are shown
