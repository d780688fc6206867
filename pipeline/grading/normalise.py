"""One spelling for signs that mean the same: digits of any script, minus signs, widths, marks nobody sees."""

import re
import unicodedata

SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
MINUS_SIGNS = "\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d"
SIGNS = {
    **dict.fromkeys(MINUS_SIGNS, "-"),
    "\u066b": ".",  # Arabic decimal separator
    "\u066c": ",",  # Arabic thousands separator
    "\u2044": "/",
    "÷": "/",
    "×": r"\times ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "π": r"\pi ",
    "∞": r"\infty ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\ne ",
    "±": r"\pm ",
    "∪": r"\cup ",
    "°": r"^\circ",
}


def plain_signs(text: str) -> str:
    """`text` with compatibility forms (full width, ligatures) and digits of every script made plain.

    Raised and lowered digits become `^{..}` and `_{..}` and vulgar fractions `\\frac` first, since folding alone would
    turn 10² into 102. Invisible format characters (direction marks, joiners, soft hyphens) go.
    """
    if text.isascii():
        return text
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda m: "^{" + m[0].translate(SUPERSCRIPTS) + "}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉]+", lambda m: "_{" + m[0].translate(SUBSCRIPTS) + "}", text)
    text = re.sub("[¼-¾⅐-⅞]", _vulgar, text)
    text = unicodedata.normalize("NFKC", text)
    text = re.sub(r"√\s*\(([^()]*)\)|√\s*(\w+)", lambda m: r"\sqrt{" + (m[1] or m[2]) + "}", text)
    return "".join(_sign(c) for c in text)


def _vulgar(match: re.Match[str]) -> str:
    over, under = unicodedata.normalize("NFKC", match[0]).split("\u2044")
    return rf"\frac{{{over}}}{{{under}}}"


def _sign(c: str) -> str:
    if c in SIGNS:
        return SIGNS[c]
    category = unicodedata.category(c)
    if category == "Nd":
        return str(unicodedata.decimal(c))
    if category == "Zs":
        return " "
    return "" if category == "Cf" else c


WRAPPERS = re.compile(r"^\s*(?:\$\$(.+)\$\$|\$(.+)\$|\\\((.+)\\\)|\\\[(.+)\\\]|\*\*(.+)\*\*)\s*$", re.DOTALL)
FONTS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|boldsymbol|mbox)\s*\{([^{}]*)\}")
SPACING = re.compile(r"\\[,;:!>]|\\(?:left|right|displaystyle|big|Big|bigg|Bigg|quad|qquad)(?![A-Za-z])")
SHORT_FRACTION = re.compile(r"\\frac\s*(\d)\s*(\d)")
BRACED_COMMA = re.compile(r"(?<![\d,])(\d+)((?:\{,\}\d+)+)")
GROUPED = re.compile(r"(?<![\d.,(\[{])([1-9]\d{0,2}(?:,\d{3})+)(?![\d,)\]])")


def canonical(text: str) -> str:
    """An answer in one spelling, still LaTeX: the form in which two answers are compared as strings.

    Outer math or bold marks, spacing commands, fonts, degree and currency signs, a closing period and thousands
    separators go. `{,}` is a thousands separator before groups of three digits (`1{,}234`, not after a leading zero),
    else a decimal comma (`3{,}5` is 3.5). A bare comma groups digits only in threes, without spaces and not next to a
    bracket (`1,234`); elsewhere it separates the items of a list.
    """
    text = _unwrap(plain_signs(text))
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = FONTS.sub(r"\1", SPACING.sub("", text))
    text = text.replace("\\$", "").replace("$", "").replace("~", " ").replace("\\ ", " ").replace("**", "^")
    text = re.sub(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})", "", text)
    text = GROUPED.sub(lambda m: m[1].replace(",", ""), BRACED_COMMA.sub(_braced_comma, text))
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"[.。]$", "", text) if not text.endswith("..") else text
    return re.sub(r"\s*([-+*/=^<>(){}\[\],:])\s*", r"\1", text).strip()


def _unwrap(text: str) -> str:
    while match := WRAPPERS.match(text):
        inner = next(part for part in match.groups() if part is not None)
        if "$" in inner or "**" in inner:
            break
        text = inner
    return text


def _braced_comma(match: re.Match[str]) -> str:
    head, *groups = [match[1], *match[2].split("{,}")[1:]]
    if len(head) <= 3 and head[0] != "0" and all(len(group) == 3 for group in groups):
        return head + "".join(groups)
    return f"{head}.{groups[0]}" if len(groups) == 1 else match[0]
