"""Characters in a text that tell of an accident on its way."""

import re

# Each with what it is called in the doctor's lines.
CONTROL, REPLACEMENT, MOJIBAKE = "control", "replacement", "mojibake"
HTML, INVISIBLE = "html", "invisible"
DESCRIPTIONS = {
    CONTROL: "control characters",
    REPLACEMENT: "U+FFFD, where bytes were not text",
    MOJIBAKE: "UTF-8 that was read as Latin-1, such as Ã©",
    HTML: "HTML tags or entities",
    INVISIBLE: "zero-width and direction characters",
}
# What the bytes 0x80 to 0xBF of UTF-8 become when they are read as Windows-1252
# or Latin-1.
_SECOND = "[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
# Tab and line ends are ordinary white space to the tokenizer.
_ANYWHERE = {
    CONTROL: re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"),
    HTML: re.compile(
        r"&(?:[a-zA-Z]{2,8}|#\d{1,7}|#x[0-9a-fA-F]{1,6});"
        r"|</?[a-zA-Z][a-zA-Z0-9]*\s*/?>"
        r"|<[a-zA-Z][a-zA-Z0-9]*\s[^<>]*=[^<>]*>"
    ),
}
_BEYOND_ASCII = {
    REPLACEMENT: re.compile("\ufffd"),
    MOJIBAKE: re.compile(f"[ÂÃ]{_SECOND}|â[€\u0080]|ï»¿|ðŸ"),
    INVISIBLE: re.compile(
        "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
    ),
}


def suspicious(text: str) -> dict[str, str]:
    """What looks like an accident in a text.

    Args:
      text: any text.

    Returns:
      Kind (a key of `DESCRIPTIONS`) to the first place, with a few characters
      around it.
    """
    patterns = _ANYWHERE if text.isascii() else {**_ANYWHERE, **_BEYOND_ASCII}
    found = {}
    for kind, pattern in patterns.items():
        match = pattern.search(text)
        if match:
            found[kind] = text[max(0, match.start() - 15) : match.end() + 15]
    return found
