"""The layout that a plan asks for: which operator gets which parallelism and max parallelism.

A number is the parallelism of the migrated operators. If no state is migrated, it is that of all operators, except of
those that can't have it: an operator whose max parallelism is 1 is not parallel, and state that only the operator
itself can distribute stays with its subtasks (Flink distributes it when the job starts). An operator that the plan
names must be able to have what the plan says. One without state has at most as many subtasks as the new max
parallelism: nothing of it has to be distributed, and Flink reads no operator that has more.

A job sets a max parallelism of 1 only for operators that can't be parallel, and Flink then refuses another one. So a
new max parallelism is for the other operators, unless the whole job has 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from flinkstate.errors import UsageError
from flinkstate.hashing.key_groups import default_note
from flinkstate.keyed.compression import Compression
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout, why_not_distributed
from stateferry.runs.plan.plan import MigrationPlan

# The new savepoint of a state of maps is two to three times as large, if it isn't compressed.
_LARGE = 4 << 30


def wanted_layout(
    plan: MigrationPlan, source: Savepoint, migrated: Sequence[Operator], native: frozenset[bytes]
) -> Layout:
    """The layout of the plan; `migrated` are the operators of which states are migrated."""
    not_parallel = frozenset[bytes]() if plan.max_parallelism is None else _not_parallel(source)
    maximum = Layout({}, plan.max_parallelism, not_parallel=not_parallel)
    parallelism: dict[bytes, int] = {}
    if isinstance(plan.parallelism, dict):
        parallelism = {source.operator(name).id: wanted for name, wanted in plan.parallelism.items()}
    elif plan.parallelism is not None:
        operators = migrated if plan.operators else source.metadata.operators
        parallelism = {
            operator.id: plan.parallelism
            for operator in operators
            if plan.operators or why_kept(maximum.of(operator), plan.parallelism) is None
        }
    for operator in source.metadata.operators:
        most = maximum.of(operator).max_parallelism
        if _is_cut(operator, most):
            parallelism.setdefault(operator.id, most)
    return Layout(parallelism, plan.max_parallelism, _compression(plan, source), native, not_parallel)


def _is_cut(operator: Operator, most: int) -> bool:
    """Whether the operator has more subtasks than this max parallelism, and nothing that must be distributed."""
    return operator.parallelism > most and (operator.fully_finished or not _has_state(operator))


def _compression(plan: MigrationPlan, source: Savepoint) -> Compression:
    """The plan's choice, which by itself compresses a state that is too large for the memory of most machines.

    Then the disk is what a run and the restore wait for, more than for the processor.
    """
    keyed = (subtask.keyed for operator in source.metadata.operators for subtask in operator.subtasks)
    is_large = sum(handle.size for handle in keyed if handle is not None) >= _LARGE
    wanted = Compression(plan.compression)
    return Compression.SNAPPY if wanted is Compression.AUTO and is_large else wanted


def why_kept(operator: Operator, parallelism: int) -> str | None:
    """Why an operator keeps its parallelism when all others get another one; None if it gets that, too."""
    if operator.max_parallelism == 1:
        return "its max parallelism is 1: the job can't run it in parallel"
    if not _has_state(operator) and parallelism > operator.max_parallelism:
        return f"it has no state, and its max parallelism is {operator.max_parallelism}"
    return why_not_distributed(operator)


def kept(plan: MigrationPlan, source: Savepoint, layout: Layout) -> Iterator[str]:
    """Yields a note for each operator that doesn't get the layout that the plan has for all operators."""
    operators = source.metadata.operators
    if plan.max_parallelism is not None and (not_parallel := _not_parallel(source)):
        names = ", ".join(operator.label for operator in operators if operator.id in not_parallel)
        yield (
            f"--max-parallelism {plan.max_parallelism} is not for {names}: its max parallelism is 1, which a job sets "
            "for what it can't run in parallel"
        )
    if (most := plan.max_parallelism) is not None:
        cut = [one.label for one in operators if _is_cut(one, most) and layout.of(one).parallelism == most]
        if cut:
            yield (
                f"--max-parallelism {most} is less than the subtasks of {', '.join(cut)}, which has nothing to "
                f"distribute: the new savepoint gives it {most}, and Flink refuses a job that gives it more"
            )
    if plan.max_parallelism not in (None, 1) and all(operator.max_parallelism == 1 for operator in operators):
        yield (
            "the max parallelism of all operators is 1, so nothing shows which of them can't run in parallel: if the "
            f"new job has any, such as windowAll, Flink refuses a savepoint that gives them {plan.max_parallelism}"
        )
    if plan.rescales_only and isinstance(plan.parallelism, int):
        for operator in operators:
            reason = why_kept(operator, plan.parallelism)
            if reason is not None and operator.parallelism != plan.parallelism:
                yield (
                    f"--parallelism {plan.parallelism} is not for {operator.label}, which keeps {operator.parallelism} "
                    f"{'subtask' if operator.parallelism == 1 else 'subtasks'}: {reason}"
                )


def unlike_defaults(operators: Iterable[Operator]) -> Iterator[str]:
    """Yields a note for each layout of the new savepoint whose max parallelism isn't the one a new job would get."""
    named: dict[str, list[str]] = {}
    for operator in operators:
        note = default_note(operator.parallelism, operator.max_parallelism)
        if note is not None and _has_state(operator) and operator.max_parallelism > 1:
            named.setdefault(note, []).append(operator.label)
    for note, labels in named.items():
        yield f"{', '.join(labels)}: {note}"


def layout_problems(plan: MigrationPlan, source: Savepoint) -> Iterator[str]:
    """Yields what is wrong with the operators for which the plan has a parallelism."""
    if not isinstance(plan.parallelism, dict):
        return
    names: dict[bytes, str] = {}
    for name, parallelism in plan.parallelism.items():
        try:
            operator = source.operator(name)
        except UsageError as error:
            yield f"parallelism {name}={parallelism}: {error}"
            continue
        if (other := names.setdefault(operator.id, name)) != name:
            yield f"parallelism: {other!r} and {name!r} are the same operator, {operator.label}: name it once"
        elif not _has_state(operator):
            yield (
                f"parallelism {name}={parallelism}: operator {operator.label} has no state, so nothing in the "
                "savepoint depends on its parallelism: leave it out, and start the job with the parallelism that you "
                "want"
            )


def _not_parallel(source: Savepoint) -> frozenset[bytes]:
    """The ids of the operators whose max parallelism is 1; none if that is so of the whole job."""
    operators = source.metadata.operators
    found = frozenset(operator.id for operator in operators if operator.max_parallelism == 1)
    return found if len(found) < len(operators) else frozenset()


def _has_state(operator: Operator) -> bool:
    return any(subtask.finished or subtask.streams() for subtask in operator.subtasks)
