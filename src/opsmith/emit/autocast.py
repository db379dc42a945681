"""Autocast rules of the device: the plan's changes of PyTorch's lists, as C++."""

from __future__ import annotations

from opsmith.description import Precision
from opsmith.emit.text import banner, quoted
from opsmith.plan import AutocastRule, Plan

_PRECISIONS = {
    Precision.LOWER: "kLower",
    Precision.FLOAT32: "kFloat32",
    Precision.WIDEST: "kWidest",
    Precision.UNCHANGED: "kUnchanged",
}


def autocast_file(plan: Plan) -> str:
    """The file that registers autocast."""
    dtypes = ", ".join(f"at::ScalarType::{name}" for name in plan.autocast_dtypes)
    return "\n".join(
        [
            banner(plan, "what torch.autocast does."),
            "#include <opsmith/autograd/autocast.h>\n",
            "namespace {\n",
            "[[maybe_unused]] const bool autocast_set = [] {",
            f"opsmith::set_autocast({{{dtypes}}}, {{",
            *(_rule(rule) for rule in plan.autocast),
            "});",
            "return true;",
            "}();\n",
            "}  // namespace\n",
        ]
    )


def _rule(rule: AutocastRule) -> str:
    precision = "kFloat32Result" if rule.sets_dtype else _PRECISIONS[rule.precision]
    # On a line of its own, where no digest sees it.
    return f"// {rule.location}\n{{{quoted(rule.operator)}, opsmith::Precision::{precision}}},"
