"""Sentences that state an answer, and sentences that only play with one.

A statement is a cue ("the answer is", "Answer:", a "Final Answer" heading, the same in other languages) and a value.
It does not count where the sentence around it is
- a question ("Is the answer 5?", "the answer is 5?", "the answer is 5, right?"),
- a guess: maybe, perhaps, possibly, might, could be, guess, suppose, assume, let's say, not sure, for example, e.g.,
- a condition before the cue ("if the answer is 5", "unless", "whether") unless "so", "therefore", "thus" or "hence"
  closes it first ("if b is 3 then c is 2, so the answer is 5" states 5), or one after the value ("is 5 if"),
- a denial: "the answer is not 5", "I don't think the answer is 5", "the answer is 5, which is wrong".
The value ends with its sentence, at a bracketed remark, or where prose goes on ("12 because 3*4").
"""

import re
from collections.abc import Iterator

CUES = (
    r"\banswers?\b(?:\s+(?:to|for|of)\s[^.?!\n:=]{1,80}?)?(?:\*\*)?\s*"
    r"(?:\b(?:is|are|equals|must be|should be|becomes|comes out (?:to|as|to be))\b|[:=])(?:\*\*)?\s*:?",
    r"\bfinal answer\b[\s*#:_]*(?=\n|\*\*|\$|\d)",
    r"答案(?:应该|就)?(?:是|为|等于|[:：])\s*[:：]?",
    r"(?:答え|解答)\s*(?:は|[:：])",
    r"정답은|답은",
    r"\b(?:respuesta|resposta|risposta|réponse|reponse)\b(?:\s+\w{5,12})?\s*(?:\b(?:es|est)\b|\bé|\bè|[:=])\s*:?",
    r"\bAntwort\b(?:\s*:|\s+(?:ist|lautet)\b)\s*:?",
    r"\bответ\b\s*(?:[:=]|-)\s*",
    r"(?:الجواب|الإجابة)\s*(?:هو|هي|:)",
    r"उत्तर\s*(?:है|[:：])",
)
CUE = re.compile("|".join(f"(?:{cue})" for cue in CUES), re.IGNORECASE)
BOLD_LAST_LINE = re.compile(r"(?:^|\n)[ \t]*\*\*([^*\n]+)\*\*[ \t.]*$")

HEADING_GAP = re.compile(r"[\s#>:]*")
REACH = 500  # characters of a sentence looked at on either side of a statement
MOST = 200  # statements of one text looked at, the last ones: loops of a broken model must not cost minutes
DISPLAY_MATH = re.compile(r"\\\[.*?\\\]|\$\$.*?\$\$|\$[^$\n]+\$", re.DOTALL)
SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?。！？؟]+(?=\s|$|[\"'”’)*]|[^\x00-\x7f])|[。！？؟]|\n")
GUESS = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|might|could|guess\w*|suppos\w+|assum\w+|let's say|say it is|hypothe\w+"
    r"|not sure|unsure|uncertain|for example|for instance|such as|quizás?|tal vez|peut-être|vielleicht|talvez|forse)\b"
    r"|\b(?:check|verify|see|test|show|confirm)(?:\s\w+)?\s(?:that|if|whether)\b"
    r"|\b(?:problem|question|statement|prompt|example)\s(?:says|states|gives|claims|reads)\b"
    r"|\be\.g\.|也许|可能|大概|假设|例如",
    re.IGNORECASE,
)
CONDITION = re.compile(r"\b(?:if|unless|whether|si|wenn)\b|如果|若", re.IGNORECASE)
DENIAL = re.compile(r"\b(?:not|never|cannot|neither|nor|no)\b|n't\b|n’t\b|不是|不对", re.IGNORECASE)
REJECTED = re.compile(r"\b(?:wrong|incorrect|mistaken|false|not right|not correct|impossible)\b", re.IGNORECASE)
CLOSES_CONDITION = re.compile(r"\b(?:so|therefore|thus|hence)\b", re.IGNORECASE)
CLOSES_DENIAL = re.compile(r"[,;:]|\b(?:so|therefore|thus|hence|but)\b", re.IGNORECASE)

NOT_A_VALUE = re.compile(
    r"^(?:not|never|no longer|n't|correct|right|wrong|incorrect|in|the|that|to|given|same|as|also|still|then|now|what"
    r"|how|where|clear|clearly|obvious|unknown|unclear|too|just the|our|my|your|this|an?\s[a-z]{2,})\b(?!\s*[=)])",
    re.IGNORECASE,
)
FILLER = re.compile(
    r"^(?:(?:therefore|thus|simply|just|indeed|now|exactly|equal to|clearly)\b[\s,:]*|[:：]\s*)+", re.IGNORECASE
)
PROSE_GOES_ON = re.compile(
    r"\s*(?:[;]|,?\s+(?:because|since|as|which|where|when|for|so|but|if|maybe|perhaps|right|then|given|after|by|from"
    r"|with|while|that|not|I)\b|\s\((?![\d\s.,/+-]*\)$)|\s*[（,，]\s*(?:因为|所以)|\s+-\s+(?=[A-Za-z]{2})).*$",
    re.IGNORECASE | re.DOTALL,
)
TAIL = re.compile(r"(?:です|입니다|है|である)\s*$")


def sentence_statements(text: str) -> Iterator[tuple[str, int, int, bool]]:
    """(answer, start, end, hedged) of each sentence of `text` that states one, in order."""
    last_end = -1
    for cue in list(CUE.finditer(text))[-MOST:]:
        start = _value_start(text, cue.end())
        end = _sentence_end(text, start)
        value = _value(text[start:end])
        if value is None:
            continue
        last_end = end
        yield value, cue.start(), end, hedged(text, cue.start(), end)
    bold = BOLD_LAST_LINE.search(text.rstrip())
    if bold and bold.start(1) >= last_end and not CUE.search(bold[0]):
        yield bold[1].strip(), bold.start(), bold.end(), hedged(text, bold.start(1), bold.end())


def hedged(text: str, start: int, end: int) -> bool:
    """Whether the sentence around the statement [start, end) asks, guesses, conditions or denies it."""
    before = text[_sentence_start(text, start) : start]
    stop = _sentence_end(text, end)
    inside, after = text[start:end], text[end:stop]
    if text[stop : stop + 1] in ("?", "？", "؟"):
        return True
    if GUESS.search(before) or GUESS.search(inside) or GUESS.search(after):
        return True
    if _open(CONDITION, CLOSES_CONDITION, before) or _open(DENIAL, CLOSES_DENIAL, before):
        return True
    return bool(CONDITION.search(inside) or CONDITION.search(after) or REJECTED.search(inside + after))


def _open(word: re.Pattern[str], closes: re.Pattern[str], before: str) -> bool:
    """Whether the last `word` before the statement still holds there, that is, nothing `closes` it."""
    ends = [match.end() for match in word.finditer(before)]
    return bool(ends) and not closes.search(before, ends[-1])


def _value_start(text: str, at: int) -> int:
    """Past blanks, marks of headings, and line ends that stand between a heading and its value."""
    match = HEADING_GAP.match(text, at)
    return match.end() if match else at


def _sentence_start(text: str, at: int) -> int:
    first = max(0, at - REACH)
    ends = [m.end() for m in SENTENCE_END.finditer(text, first, at)]
    return ends[-1] if ends else first


def _sentence_end(text: str, at: int) -> int:
    """Where the sentence that holds `at` ends; display math that begins there is part of it, line ends included."""
    last = min(len(text), at + REACH)
    display = DISPLAY_MATH.match(text, at, last)
    match = SENTENCE_END.search(text, display.end() if display else at, last)
    return match.start() if match else last


def _value(raw: str) -> str | None:
    """The value at the beginning of `raw` (the rest of the sentence), None where there is none."""
    raw = FILLER.sub("", raw.strip())
    if not raw or r"\boxed" in raw or r"\fbox" in raw:
        return None
    fenced = re.match(r"\*\*(.+?)\*\*|\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", raw, re.DOTALL)
    if fenced and not re.match(r"\s*(?:,|and\b|or\b)", raw[fenced.end() :]):
        value = next(part for part in fenced.groups() if part is not None)
    else:
        value = PROSE_GOES_ON.sub("", raw)
    value = TAIL.sub("", value.strip().strip("*\"'“”`").rstrip(".,:")).strip()
    return value if value and not NOT_A_VALUE.match(value) else None
