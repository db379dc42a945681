"""The reference of a C or C++ header in Markdown: each comment, above the declaration that it is for.

A header opens with a comment on the whole of it. A declaration is what stands between two empty lines
outside of braces, with its comment first; the namespace ``detail``, private members and bodies of functions
are left out.
"""

from __future__ import annotations

import re
from pathlib import Path

_COMMENT = re.compile(r"\A\s*(?P<text>/\*.*?\*/|(?://[^\n]*\n)+)\s*", re.DOTALL)
_LEFT_OUT = re.compile(
    r"^#ifdef __cplusplus\n.*?^#endif\n|^namespace detail \{.*?^\}  // namespace detail\n|"
    r"^ private:\n.*?(?=^\};)|"
    r"^(?:#(?:ifndef|endif|include|pragma)\b|#define \w+_H$|(?:\}  // )?namespace\b)[^\n]*\n",
    re.MULTILINE | re.DOTALL,
)
_NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"[^\"\n]*\"|'.'", re.DOTALL)
_NAME = re.compile(
    r"^#define (\w+)|^\} (\w+);|^typedef [^()\n]*\b(\w+);|"
    r"^(?:class|struct|enum(?: class)?)(?: \w+\(.*?\))? (\w+)|^using (\w+) =|"
    r"constexpr [^=(\n]*?(\w+)(?:\[\])? ?[={]|(\w+)\(",
    re.MULTILINE,
)
_BEFORE_NAME = re.compile(r"^template <.*>\n|\[\[\w+\]\] ", re.MULTILINE)
_TYPE = re.compile(r"^(?:typedef |class |struct |enum )", re.MULTILINE)


def header_page(path: Path) -> str:
    """The Markdown of the header at ``path``: its opening comment, then a section for each declaration."""
    text = path.read_text(encoding="utf-8")
    opening = _COMMENT.match(text)
    assert opening is not None, f"{path} does not open with a comment"
    sections = [_prose(opening["text"])]
    for chunk in _chunks(_LEFT_OUT.sub("", text[opening.end() :])):
        comment = _COMMENT.match(chunk)
        code = chunk[comment.end() :] if comment else chunk
        if not _TYPE.search(code):
            code = re.sub(r"(?<=[\w)]) \{(?:  //[^\n]*)?\n.*", ";", code, flags=re.DOTALL)
        if name := _NAME.search(_BEFORE_NAME.sub("", _NOT_CODE.sub("", code))):
            sections.append(f"### `{name[name.lastindex or 0]}`")
            sections += [_prose(comment["text"])] if comment else []
            sections.append(f"```cpp\n{code.strip()}\n```")
    return "\n\n".join(sections) + "\n"


def _chunks(text: str) -> list[str]:
    """The pieces of a header between empty lines that are in no braces."""
    chunks, depth = [""], 0
    for line in text.splitlines(keepends=True):
        if line.isspace() and depth == 0:
            chunks.append("")
        chunks[-1] += line
        code = _NOT_CODE.sub("", line)
        depth += code.count("{") - code.count("}")
    return chunks


def _prose(comment: str) -> str:
    """A comment's text as Markdown, in which what it indents is a list, or else code."""
    lines = [
        re.sub(r"^\s*(?:/\*|\*(?!/)|//|\*/) ?|\s*\*/$", "", line) for line in comment.splitlines()
    ]
    text = "\n".join(lines).strip()
    text = re.sub(r"<(?=[^`]*(?:`[^`]*`[^`]*)*\Z)", "&lt;", text)
    if re.search(r"^ +- ", text, re.MULTILINE):
        return re.sub(r"(?<=\S)\n(?= +- )", "\n\n", text, count=1)
    return re.sub(r"^ {2}", "      ", text, flags=re.MULTILINE)
