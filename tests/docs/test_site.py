"""The site of docs/: pages that GitHub shows as they are become MkDocs', and headers their reference."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
HOOKS = runpy.run_path(str(ROOT / "tools" / "docs_site" / "hooks.py"))


def on_the_site(markdown: str) -> str:
    config = SimpleNamespace(repo_url="https://host/opsmith")
    return HOOKS["on_page_markdown"](markdown, page=None, config=config, files=None)


def test_links_out_of_docs_lead_to_the_repository() -> None:
    assert on_the_site("[a](../../src/a.py) [b](../start/b.md#c) [d](../../SECURITY.md)") == (
        "[a](https://host/opsmith/blob/main/src/a.py) [b](../start/b.md#c) "
        "[d](https://host/opsmith/blob/main/SECURITY.md)"
    )


def test_the_words_of_the_tests_are_no_part_of_a_fence() -> None:
    fences = ["```yaml fragment", '```cpp from="kernels.cpp"', '```py title="a.py"', "```sh"]
    assert [on_the_site(fence) for fence in fences] == [
        "```yaml",
        '```cpp title="kernels.cpp"',
        '```py title="a.py"',
        "```sh",
    ]


def test_roles_of_docstrings_are_names() -> None:
    html = "raises :class:<code>~opsmith.errors.LoadError</code>"
    shown = HOOKS["on_page_content"](html, page=None, config=None, files=None)
    assert shown == "raises <code>LoadError</code>"


def test_a_header_is_its_comments_and_declarations(tmp_path: Path) -> None:
    header = tmp_path / "chip.h"
    header.write_text(
        """// For kernels<T>: \"one\" device.
//
//   launch(1);
#pragma once

namespace chip {
namespace detail {
int hidden();
}  // namespace detail

// Queues it.
template <class T>
inline void launch(T work) {
  run(work);

  wait();
}

enum class State { kIdle, kBusy };

class Queue {
 public:
  int length() const { return length_; }

 private:
  int length_;
};

}  // namespace chip
""",
        encoding="utf-8",
    )
    assert (
        HOOKS["header_page"](header)
        == """For kernels&lt;T>: "one" device.

      launch(1);

### `launch`

Queues it.

```cpp
template <class T>
inline void launch(T work);
```

### `State`

```cpp
enum class State { kIdle, kBusy };
```

### `Queue`

```cpp
class Queue {
 public:
  int length() const { return length_; }

};
```
"""
    )


def test_each_header_that_is_for_others_is_on_a_page() -> None:
    include = ROOT / "src" / "opsmith" / "csrc" / "include"
    headers = [path for folder in (include, include / "opsmith") for path in folder.glob("*.h")]
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*-headers.md"))
    missing = [
        path.name
        for path in headers
        if f"/{path.name} -->" not in pages.replace("header ", "header /")
    ]
    assert missing == ["opsmith_caching_allocator.h"]  # docs/observe/memory.md explains it
