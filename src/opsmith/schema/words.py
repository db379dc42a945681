"""Words that have a meaning where a description's names end up, and so are no names there.

Generated C++ declares kernels, operators and namespaces by their names; PyTorch parses the schemas.
Called by ``custom`` and ``description``, each for the names that it reads.
"""

from __future__ import annotations

CPP_WORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
    false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public register reinterpret_cast requires return short signed
    sizeof static static_assert static_cast struct switch template this thread_local throw true try
    typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    NULL errno math_errhandling sched_priority stderr stdin stdout
    """.split()
)
"""The keywords of C++20, and the macros that torch's headers bring and that look like names."""

SCHEMA_WORDS = frozenset(
    """
    False None True and as assert break class continue def del elif else for global if import in is
    not or pass raise return while with
    """.split()
)
"""The words of TorchScript (``torch/csrc/jit/frontend/lexer.h``), which no part of a schema can be named."""


def reserved_in_cpp(symbol: str) -> str:
    """The first part of the qualified name ``symbol`` that cannot be a name in C++; empty if all can."""
    parts = symbol.split("::")
    return next((part for part in parts if part in CPP_WORDS or part == "std"), "")
