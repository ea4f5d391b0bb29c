"""Answers that differ, those that are explained, and their lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

AS_SIDECAR = "as sidecar"


@dataclass(frozen=True)
class Difference:
    """An answer that others do not give. ``theirs`` has the answer of each reader that gives one."""

    question: str
    ours: str
    theirs: dict[str, str] = field(default_factory=dict)

    @property
    def is_outvoted(self) -> bool:
        """Whether others do not bear sidecar out. That pyarrow does is no proof: its decoders are sidecar's too."""
        votes = [said == AS_SIDECAR for name, said in self.theirs.items() if (name, said) != ("pyarrow", AS_SIDECAR)]
        return 2 * sum(votes) <= len(votes)

    def __str__(self) -> str:
        theirs = ", ".join(f"{name}: {said}" for name, said in self.theirs.items())
        return " ".join(f"{self.question} | sidecar: {self.ours} | {theirs}".split("\n"))


@dataclass(frozen=True)
class Answers:
    """What came of one item: how many questions were asked, and what differs. ``writer`` is who made it."""

    asked: int
    differences: list[Difference] = field(default_factory=list)
    writer: str = ""

    def line(self, name: str) -> str:
        """The answers as a line of JSON, from which a run goes on."""
        return json.dumps({"name": name, **asdict(self)})

    @classmethod
    def of_line(cls, line: str) -> tuple[str, Answers]:
        found: dict[str, Any] = json.loads(line)
        differences = [Difference(**one) for one in found["differences"]]
        return found["name"], cls(found["asked"], differences, found["writer"])


Explain = Callable[[str, str, Difference], str | None]
"""``explain(name, writer, difference)`` says whose fault a difference is; ``None`` if it may be sidecar's."""


@dataclass
class Report:
    """Prints differences as they come, and counts them at the end by the first word of their question."""

    explain: Explain
    items: int = 0
    asked: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, answers: Answers) -> None:
        self.items += 1
        self.asked += answers.asked
        for difference in answers.differences:
            why = self.explain(name, answers.writer, difference)
            if why is None and difference.theirs and not difference.is_outvoted:
                why = "most other readers answer as sidecar does"
            kind = difference.question.split(":")[0].split(" ")[0].rstrip(",")
            if why is None:
                self.unexplained[kind] += 1
                print(f"{name} [{answers.writer}] {difference}", flush=True)
            else:
                self.explained[why] += 1

    def finish(self, what: str) -> int:
        """Print the counts; the exit status is 1 if something is not explained."""
        for why, count in sorted(self.explained.items()):
            print(f"explained: {count:,} x {why}")
        for kind, count in sorted(self.unexplained.items()):
            print(f"unexplained: {count:,} x {kind}")
        sums = (sum(counts.values()) for counts in (self.explained, self.unexplained))
        counts = "{} {}, {:,} questions; {} differences explained, {} unexplained"
        print(counts.format(self.items, what, self.asked, *sums))
        return 1 if self.unexplained else 0


def lines_of(path: Any) -> Iterable[tuple[str, Answers]]:
    """What an earlier run wrote; its last line may have been cut."""
    for line in path.read_text().splitlines():
        if line.endswith("}"):
            yield Answers.of_line(line)
