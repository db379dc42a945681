"""pytest plugin: the fixture ``no_fallback``, with which a test fails where anything runs on the CPU.

pytest finds it by its entry point.  Imports neither torch nor a backend until a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import pytest

ALLOWED = "opsmith_allowed_fallbacks"
"""The ini option with the operators that may fall back in tests that ask for ``no_fallback``."""

_check = pytest.StashKey[Callable[[], None]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        ALLOWED,
        "operators that may fall back despite `no_fallback`, one in a line",
        type="linelist",
    )


@pytest.fixture
def no_fallback(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test fails if an operator of the device would run on the CPU: the call raises.

    So it does where a kernel would compute on the host, on copies.

    A backend may be loaded before or in the test.  The ini option ``opsmith_allowed_fallbacks`` and a
    block ``with opsmith.fallback("cpu", only=["topk"])`` make exceptions.
    """
    from opsmith.runtime.records.fallback_policy import fallback

    allowed = request.config.getini(ALLOWED)
    before = _denied()

    def check() -> None:
        swallowed = {
            operator: calls - before.get(operator, 0)
            for operator, calls in _denied().items()
            if calls > before.get(operator, 0)
        }
        if swallowed:
            named = ", ".join(f"{operator} ({calls})" for operator, calls in swallowed.items())
            pytest.fail(
                "the test passed, but caught the exceptions that kept these operators from running on "
                f"the CPU (calls): {named}",
                pytrace=False,
            )

    request.node.stash[_check] = check
    with fallback("cpu", only=allowed) if allowed else fallback("deny"):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Ends the call of a test with ``no_fallback``; a test that failed already says why."""
    result = yield
    if check := item.stash.get(_check, None):
        check()
    return result


def _denied() -> dict[str, int]:
    """The calls that were denied the fallback so far, by operator."""
    from opsmith.errors import LoadError
    from opsmith.runtime.records.fallbacks import fallbacks

    try:
        return {count.operator: count.denied for count in fallbacks().counts}
    except LoadError:
        return {}
