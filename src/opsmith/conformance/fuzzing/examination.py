"""Random programs in a worker: drawn, compared, and shrunk where they differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from opsmith.conformance.fuzzing.draw import draw_program
from opsmith.conformance.fuzzing.findings import Finding
from opsmith.conformance.fuzzing.judge import Difference, first_difference
from opsmith.conformance.fuzzing.program import Program
from opsmith.conformance.fuzzing.shrink import shrunk
from opsmith.conformance.protocol import Board
from opsmith.conformance.results import Status
from opsmith.conformance.subject import Refused
from opsmith.plan import Plan, Route

# One program of a class is enough to look at, and shrinking takes as long as hundreds of programs.
_SHRUNK_OF_A_CLASS = 2
# The difference that is told of a program that is about to be tried.
_TRIED = Difference("", "ended the process", "while a program that differs was made smaller", 0)


@dataclass(frozen=True)
class Examined:
    """How one program ended: ``message`` is a :class:`Finding` as JSON, or why it was skipped."""

    status: Status
    steps: int
    operators: list[str]
    message: str = ""


@dataclass
class Examination:
    """The programs of one seed on one device, whose texts load it by the name ``backend``."""

    seed: int
    device: str
    plan: Plan
    backend: str
    board: Board
    _shrunk: Counter[tuple[str, str]] = field(default_factory=Counter)

    def of(self, index: int) -> Examined:
        """Runs program ``index``."""
        self.board.at(0, on_device=False)
        program = draw_program(self.seed, index)
        steps, operators = len(program.steps), sorted({step.operator for step in program.steps})
        try:
            found = first_difference(program, self.device, self.board, self._refused)
        except Refused as refused:
            return Examined(Status.SKIPPED, steps, operators, str(refused))
        if found is None:
            return Examined(Status.PASSED, steps, operators)
        small = Program(program.leaves, program.steps[: found.step + 1]).needed()
        if self._shrunk[found.operator, found.kind] < _SHRUNK_OF_A_CLASS:
            self._shrunk[found.operator, found.kind] += 1
            small, found = shrunk(
                program,
                found,
                self.device,
                self.board,
                lambda *attempt: self._note(index, *attempt),
            )
            self.board.note(b"")
        message = msgspec.json.encode(self._shown(index, small, found)).decode()
        return Examined(Status.FAILED, steps, operators, message)

    def _note(self, index: int, best: Program, found: Difference, tried: Program) -> None:
        """Leaves behind what is known of a program while it is made smaller, and what is tried next."""
        findings = self._shown(index, best, found), self._shown(index, tried, _TRIED)
        self.board.note(msgspec.json.encode(findings))

    def _shown(self, index: int, program: Program, found: Difference) -> Finding:
        operator = found.operator or program.steps[-1].operator
        comment = f"seed {self.seed}, program {index}: {operator}, {found.kind}:\n{found.text}"
        text = program.text(self.backend, self.device, comment)
        return Finding(index, operator, found.kind, found.text, text)

    @cached_property
    def _refused(self) -> frozenset[str]:
        """The operators that the description refuses, in some dtypes at least."""
        refusing = {Route.DENIED, Route.MISSING}
        return frozenset(
            name
            for name, entry in self.plan.by_name.items()
            if {entry.route, entry.other_dtypes} & refusing
        )
