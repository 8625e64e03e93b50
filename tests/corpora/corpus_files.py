"""Small files of every format, written by hand, for the tests of corpora."""

import bz2
import html
import pathlib

HEAD = """<?xml version="1.0"?>
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="de">
  <siteinfo>
    <sitename>Probe</sitename>
    <namespaces>
      <namespace key="-2" case="first-letter">Medium</namespace>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Diskussion</namespace>
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>
  </siteinfo>
"""
TAIL = "</mediawiki>\n"


def page(
    text: str, space: int = 0, redirect: bool = False, model: str = "wikitext"
) -> str:
    """A page of a dump."""
    mark = '    <redirect title="Else" />\n' if redirect else ""
    return (
        f"  <page>\n    <title>A &amp; B</title>\n    <ns>{space}</ns>\n"
        f"    <id>7</id>\n{mark}    <revision>\n      <id>8</id>\n"
        f"      <model>{model}</model>\n"
        f'      <text xml:space="preserve">{html.escape(text)}</text>\n'
        "    </revision>\n  </page>\n"
    )


def articles(count: int) -> list[str]:
    """Articles, each followed by pages that are none."""
    return [
        part
        for number in range(count)
        for part in (
            page(
                f"{{{{Box|n={number}}}}}\n'''Town {number}''' is a [[city|"
                f"town]] of {number + 40}.<ref>x</ref> It is old.\n\n"
                "== See also ==\n* Nothing\n\nIt has a wall. "
                * (number % 3 + 1)
            ),
            page("Talk about it.", space=1),
            page("#REDIRECT [[Town]]", redirect=True),
        )
    ]


def write_dump(path: pathlib.Path, pages: list[str]) -> pathlib.Path:
    """Writes a dump, packed as its name says; "multistream" is in streams."""
    if "multistream" in path.name:
        parts = [HEAD]
        parts += ["".join(pages[k : k + 5]) for k in range(0, len(pages), 5)]
        packed = b"".join(bz2.compress(p.encode()) for p in [*parts, TAIL])
        path.write_bytes(packed)
        return path
    whole = (HEAD + "".join(pages) + TAIL).encode()
    packed = bz2.compress(whole) if path.suffix == ".bz2" else whole
    path.write_bytes(packed)
    return path
