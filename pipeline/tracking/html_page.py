"""The frame of a page that is one file: escaped text, scripts allowed by digest alone, data no text can break out of.

A page asks for nothing outside itself. What a model or a data set wrote is untrusted, so all of it goes through `esc`
(markup) or `island` (data for a script).
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ASSETS = Path(__file__).with_name("assets")


def _plain(text: object) -> str:
    """Text without the signs that a page cannot hold (NUL, lone surrogates); they become U+FFFD."""
    return "".join("\ufffd" if c == "\0" or 0xD800 <= ord(c) <= 0xDFFF else c for c in str(text))


def esc(text: object) -> str:
    """Text that is safe as content and as an attribute. Carriage returns, which HTML would change, stay visible."""
    return html.escape(_plain(text), quote=True).replace("\r", "␍")


def island(name: str, data: object) -> str:
    """`data` as JSON for a script to read by its id. ASCII, without a sign that could end or begin markup.

    ValueError for NaN and infinity, which JSON has not.
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


@cache
def asset(name: str) -> str:
    """A file of `assets/` as text."""
    return (ASSETS / name).read_text(encoding="utf-8")


def page(
    title: str, body: str, styles: Sequence[str] = ("page.css",), scripts: Sequence[str] = ("page.js",), data: str = ""
) -> str:
    """A whole page around `body` (markup) and `data` (islands), with style sheets and scripts from `assets/`."""
    script, style = "\n".join(map(asset, scripts)), "\n".join(map(asset, styles))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = ("default-src 'none'", "style-src 'unsafe-inline'", "img-src data:", f"script-src 'sha256-{digest}'")
    policy = "; ".join((*rules, "base-uri 'none'", "form-action 'none'"))
    return (
        '<!doctype html><html lang=en><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{esc(title)}</title><style>{style}</style></head>"
        f'<body data-tint="part">{body}<div class=tip id=tip role=tooltip hidden></div>'
        f"{data}<script>{script}</script></body></html>"
    )
