"""Checks a plan against its source savepoint, before anything is written, and finds all that is to be done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from flinkstate.errors import PlanError, RefusedError, UsageError
from flinkstate.files.storage import Location
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.file_names import METADATA, claim_name, claimed_by, is_state_file
from flinkstate.metadata.metadata import Metadata, NativeHandle, Operator
from flinkstate.metadata.savepoint_properties import in_version, is_savepoint
from flinkstate.reading.reader import Savepoint, has_native_state
from flinkstate.serializers.types import FlinkType, OpaqueType, type_name
from flinkstate.writing.operator_rewrite import Copy, Layout, OperatorRewrite, Rewrite, Transform
from stateferry.basics.durations import format_duration
from stateferry.changes.blobs_to_rows import BlobsToRows
from stateferry.changes.drop_expired import DropExpired
from stateferry.changes.lazy_cut import LazyCut, Order
from stateferry.changes.rows_to_blobs import RowsToBlobs, legacy_state
from stateferry.changes.rules import Contradiction, LegacyRest, Nulls, PlannedTtl, Rules
from stateferry.changes.upgrade.before_upgrade import BeforeUpgrade
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo
from stateferry.changes.upgrade.restore_lost import WithLosses
from stateferry.inventory.wrong_name_signs import may_hold
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.checks.apart import check_apart
from stateferry.runs.checks.before_upgrade import find_before
from stateferry.runs.checks.field_of_pojo import field_problems
from stateferry.runs.checks.kryo_maps import map_contradiction, with_known_map
from stateferry.runs.checks.lazy_flag import flag_of, lazy_problems
from stateferry.runs.checks.other_kryo import find_elements_by_kryo, find_states_by_kryo, is_way_back, metadata_version
from stateferry.runs.checks.reverse_check import state_to_make
from stateferry.runs.checks.state_names import no_such_legacy, not_migrated_before, other_name_than_before, slips
from stateferry.runs.checks.told_ttls import find_told_ttls, with_told_ttl
from stateferry.runs.checks.wanted_layout import layout_problems, wanted_layout
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.plan.planned_states import OperatorPlan, StatePlan
from stateferry.runs.record.facts import LazyChoice


@dataclass(frozen=True, slots=True)
class ResolvedOperator:
    """What the plan asks of one operator.

    `rules` are for each legacy state that is there. `migrated_before` are the states that an earlier cut-over has
    migrated. `states` are all keyed states of the operator by name.
    """

    operator: Operator
    states: dict[str, KeyedState]
    rules: tuple[Rules, ...]
    migrated_before: tuple[StatePlan, ...]

    def moving(self, choices: Mapping[tuple[str, str], LazyChoice], plans: Mapping[str, StatePlan]) -> ResolvedOperator:
        """The same, moving only what a lazy run has chosen; `plans` are by legacy state."""
        return replace(self, rules=tuple(self._moving(rules, choices, plans) for rules in self.rules))

    def _moving(
        self, rules: Rules, choices: Mapping[tuple[str, str], LazyChoice], plans: Mapping[str, StatePlan]
    ) -> Rules:
        choice = choices.get((self.operator.hex_id, rules.legacy.name))
        if choice is None or choice.last is None:
            return replace(rules, lazy_cut=None)
        # Only lazy runs have choices. The plans of others may name a state that is not in the source.
        flag = flag_of(plans[rules.legacy.name], self.states)
        if flag is None:
            return replace(rules, lazy_cut=None)
        return replace(rules, lazy_cut=LazyCut(Order(choice.order), choice.last, flag))

    def migrated(self) -> Iterator[tuple[str, Rules]]:
        """Yields the name of each state that takes part in a migration, with its rules."""
        for rules in self.rules:
            yield rules.legacy.name, rules
            yield rules.new_name, rules
            if rules.flag_name is not None:
                yield rules.flag_name, rules


@dataclass(frozen=True, slots=True)
class ResolvedPlan:
    """A plan, its source, and what the plan asks of each operator.

    `native` are the ids of the operators whose keyed state is written as RocksDB's own files. `told` are, by operator
    id, the states whose time to live is told although they aren't migrated; `by_kryo` those that the run writes as the
    Kryo of another Flink does, `elements` the types of such operator states. `before` are the operators before an
    upgrade. `layout` is what the plan asks for.
    """

    plan: MigrationPlan
    source: Savepoint
    operators: tuple[ResolvedOperator, ...]
    native: frozenset[bytes] = frozenset()
    told: Mapping[bytes, tuple[PlannedTtl, ...]] = field(default_factory=dict)
    by_kryo: Mapping[bytes, Mapping[str, KeyedState]] = field(default_factory=dict)
    elements: Mapping[bytes, Mapping[str, FlinkType]] = field(default_factory=dict)
    before: Mapping[bytes, BeforeUpgrade] = field(default_factory=dict)
    # The one that follows from the others: to find it takes a look at every subtask.
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        migrated = [one.operator for one in self.operators]
        object.__setattr__(self, "layout", wanted_layout(self.plan, self.source, migrated, self.native))

    def moving(self, choices: Sequence[LazyChoice]) -> ResolvedPlan:
        """The same plan, moving only the keys that the snapshot of a lazy run has chosen; without choices all keys."""
        by_state = {(one.operator, one.state): one for one in choices}
        operators = (
            one.moving(by_state, {state.legacy: state for state in wanted.states})
            for one, wanted in zip(self.operators, self.plan.operators, strict=True)
        )
        return replace(self, operators=tuple(operators))

    @property
    def nothing_to_do(self) -> bool:
        """Whether the source is already migrated, and in the layout of the plan."""
        if any(one.rules for one in self.operators) or any(self.dropping.values()):
            return False
        if self.by_kryo or self.elements or self.described.version != self.source.metadata.version:
            return False
        of_layout = all(self.layout.of(operator) == operator for operator in self.source.metadata.operators)
        return of_layout and not any(
            operator.id in self.native and subtask.managed_keyed is not None
            for operator in self.source.metadata.operators
            for subtask in operator.subtasks
        )

    @property
    def dropping(self) -> dict[bytes, tuple[PlannedTtl, ...]]:
        """The states that aren't migrated and lose what has expired, by operator id."""
        return {id_: tuple(one for one in told if one.drops) for id_, told in self.told.items()}

    @property
    def described(self) -> Metadata:
        """The source's `_metadata` in the version of the Flink for which the result is."""
        version = metadata_version(self.plan, self.source, rewrites=bool(self.by_kryo or self.elements))
        return in_version(self.source.metadata, version)

    @property
    def what_was_done_before(self) -> str:
        """Says which states an earlier cut-over has migrated."""
        return "; ".join(
            f"{state.legacy} of {one.operator.label} is already migrated: the savepoint has {state.new} alone"
            for one in self.operators
            for state in one.migrated_before
        )

    def rewrites(self) -> list[OperatorRewrite]:
        """How each operator gets into the new savepoint; raises an error for what can't be done."""
        transforms: dict[bytes, Transform] = {
            one.operator.id: self._transform(one) for one in self.operators if one.rules
        }
        for id_, told in self.dropping.items():
            if told:
                transforms[id_] = DropExpired(transforms.get(id_, Copy()), told)
        by_kryo: dict[bytes, Rewrite] = {}
        ids = self.by_kryo.keys() | self.elements.keys()
        if is_way_back(self.plan, self.source):
            # Flink 1's RocksDB can't read files of Flink 2's, so none is copied.
            ids |= {operator.id for operator in self.source.keyed_operators()}
        for id_ in ids:
            rewrite = ForOtherKryo(self.by_kryo.get(id_, {}), self.elements.get(id_, {}))
            before = self.before.get(id_)
            by_kryo[id_] = rewrite if before is None else WithLosses(rewrite, before)
        return [
            OperatorRewrite.prepare(
                self.source, operator, self.layout, transforms.get(operator.id), by_kryo.get(operator.id)
            )
            for operator in self.source.metadata.operators
        ]

    def _transform(self, one: ResolvedOperator) -> BlobsToRows | RowsToBlobs:
        if self.plan.reverse:
            return RowsToBlobs(one.rules)
        return BlobsToRows(one.rules, one.states, self.plan.keep_legacy)


def open_source(plan: MigrationPlan) -> Savepoint:
    """Opens the source of a run: a canonical or native savepoint, or a checkpoint of RocksDB."""
    return Savepoint.open(plan.source, files_from=plan.files_from)


def planned(values: Mapping[str, object], origin: str = "the plan") -> MigrationPlan:
    """The plan with these values; if they name no job, it has the name of its first operator, or of the only keyed one.

    The name is the one in the savepoint, so that an operator named by its id or by its uid gives the same job.
    """
    if values.get("job") is not None:
        return plan_of(values, origin)
    named_later = plan_of({**values, "job": "named later"}, origin)
    source = open_source(named_later)
    operator, wanted = _naming_operator(named_later, source)
    # `_metadata` before version 5 has neither name nor uid: then the plan has the uid, or at least the id.
    return plan_of({**values, "job": operator.name or operator.uid or wanted}, origin)


def _naming_operator(plan: MigrationPlan, source: Savepoint) -> tuple[Operator, str]:
    """The operator after which a job without a name is named, and what the plan calls it."""
    if not plan.rescales_only:
        wanted = plan.operators[0].operator
        return source.operator(wanted), wanted
    keyed = source.keyed_operators()
    if len(keyed) != 1:
        has = f"{len(keyed)} operators have keyed state" if keyed else "no operator has keyed state"
        raise UsageError(
            f"job: missing: the plan names no operator to migrate, and {has}, so the job can't be named after one: "
            "give the job a name (--job)"
        )
    return keyed[0], keyed[0].label


def resolve(plan: MigrationPlan, source: Savepoint) -> ResolvedPlan:
    """Finds what the plan asks of the savepoint.

    Raises a `PlanError` with a line for each contradiction, and an error that names a state that can't be migrated at
    all.
    """
    check_apart(plan)
    for operator in source.keyed_operators():
        # Reads what RocksDB says of its files, so that a folder which lacks them is refused now.
        source.placed(operator)
    problems: list[str] = []
    operators = [_resolve_operator(plan, wanted, source, problems) for wanted in plan.operators]
    seen = set[bytes]()
    for one in operators:
        if one.operator.id in seen:
            problems.append(
                f"operator {one.operator.label} is there more than once, by different names: put its states into one "
                "list"
            )
        seen.add(one.operator.id)
    problems += layout_problems(plan, source)
    migrated = {(one.operator.id, name): rules for one in operators for name, rules in one.migrated()}
    told = find_told_ttls(plan, source, migrated, problems)
    problems += () if plan.no_timers else lost_timers(source)
    by_kryo = find_states_by_kryo(plan, source, {one.operator.id: one.rules for one in operators}, problems)
    elements = find_elements_by_kryo(plan, source, problems)
    before = find_before(plan, source, by_kryo, {one.operator.id: one.rules for one in operators}, problems)
    if problems:
        raise PlanError("\n".join(problems))
    resolved = ResolvedPlan(
        plan, source, tuple(operators), native_operators(plan, source), told, by_kryo, elements, before
    )
    resolved.rewrites()
    return resolved


def native_operators(plan: MigrationPlan, source: Savepoint) -> frozenset[bytes]:
    """The ids of the operators whose keyed state becomes RocksDB's own files.

    A job that has timers on the heap ignores those in RocksDB's files, and a canonical savepoint doesn't say where they
    were. So an operator with timers becomes native only if the source has them in RocksDB's files.
    """
    if plan.output_format != "native":
        return frozenset()
    return frozenset(
        operator.id
        for operator in source.keyed_operators()
        if _has_all_in_rocksdb(operator)
        or not any(state.kind is StateKind.TIMERS for state in source.keyed_states(operator))
    )


def _has_all_in_rocksdb(operator: Operator) -> bool:
    """Whether all keyed state of the operator, timers included, is in RocksDB's own files."""
    handles = [subtask.keyed for subtask in operator.subtasks if subtask.keyed is not None]
    return all(isinstance(handle, NativeHandle) and handle.timers is None for handle in handles)


def lost_timers(source: Savepoint) -> Iterator[str]:
    """Yields a problem for each operator whose timers may not be in the snapshot.

    Flink leaves timers on the heap out of native savepoints; raw keyed state of a savepoint is never timers. A
    checkpoint has them as raw keyed state, and RocksDB's timers are states.
    """
    if not is_savepoint(source.metadata):
        return
    for operator in filter(has_native_state, source.metadata.operators):
        has_timers = any(state.kind is StateKind.TIMERS for state in source.keyed_states(operator))
        if not has_timers:
            yield (
                f"operator {operator.label} has no state of timers in this native savepoint. Flink leaves timers out of"
                " native savepoints, without an error, if the job keeps them on the heap"
                " (state.backend.rocksdb.timer-service.factory: HEAP); then they would be lost. If the operators named "
                "here have no timers, plan again with --no-timers; if you aren't sure, take a canonical savepoint: "
                "flink savepoint --type canonical JOB DIR"
            )


def _resolve_operator(
    plan: MigrationPlan, wanted: OperatorPlan, source: Savepoint, problems: list[str]
) -> ResolvedOperator:
    operator = source.operator(wanted.operator)
    states = {state.name: state for state in source.keyed_states(operator)}
    _refuse_untouchable(operator, states)
    rules: list[Rules] = []
    migrated_before: list[StatePlan] = []
    for state in wanted.states:
        if plan.reverse:
            problems += other_name_than_before(plan, state.legacy, state.new, states, operator)
            two = source.metadata.version >= OF_FLINK_2
            if (made := state_to_make(plan, state, states, operator, problems, of_flink_2=two)) is not None:
                rules.append(replace(_rules(plan, state, made[0]), old_form=made[1]))
        elif state.legacy in states:
            found = list(field_problems(state, states[state.legacy], operator))
            if not found:
                states[state.legacy] = with_known_map(state, states, source, operator, plan.job_classes)
            found = found or [
                *contradictions(state, states, operator),
                *map_contradiction(state, states[state.legacy], operator),
                *(lazy_problems(state, states, operator) if plan.lazy else ()),
            ]
            problems += found
            rules += [] if found else [_rules(plan, state, states[state.legacy])]
        elif (new := states.get(state.new)) is not None and new.kind is StateKind.MAP:
            problems += _ttl_in_vain(state, new, operator)
            before = _rules(plan, state, legacy_state(state.legacy, new))
            problems += not_migrated_before(plan, wanted, before, states, operator, source)
            migrated_before.append(state)
        else:
            problems.append(no_such_legacy(state, states, operator))
    problems += [problem for one in rules for problem in slips(plan, wanted, one, states, operator)]
    rules = [with_told_ttl(plan, source, operator, one, problems) for one in rules]
    return ResolvedOperator(operator, states, tuple(rules), tuple(migrated_before))


def _refuse_untouchable(operator: Operator, states: dict[str, KeyedState]) -> None:
    if any(subtask.raw_keyed is not None for subtask in operator.subtasks):
        raise RefusedError(
            f"operator {operator.label} has raw keyed state: state that only its own code understands or, in a "
            "checkpoint, timers on the heap of a type that can't be read. It can't be migrated. If it has timers, take "
            "a canonical savepoint, in which they are a state: flink savepoint --type canonical JOB DIR"
        )
    for state in states.values():
        if state.asynchronous:
            raise RefusedError(
                f"state {state.name} of operator {operator.label} is asynchronous (V2) state: it can't be migrated"
            )


def _rules(plan: MigrationPlan, state: StatePlan, legacy: KeyedState) -> Rules:
    return Rules(
        legacy,
        state.new,
        state.flag,
        state.ttl_ms,
        plan.now,
        keep_expired=plan.keep_expired,
        nulls=Nulls(plan.nulls),
        on_contradiction=Contradiction(plan.on_contradiction),
        no_flag=state.no_flag,
        reverse=plan.reverse,
        drop_legacy_blobs=plan.drop_legacy_blobs,
        rest=LegacyRest(state.rest),
    )


def contradictions(state: StatePlan, states: dict[str, KeyedState], operator: Operator) -> Iterator[str]:
    """Yields what the plan says of an existing legacy state that contradicts the savepoint's `states`."""
    legacy = states[state.legacy]
    where = f"state {state.legacy} of operator {operator.label}"
    if reason := legacy.why_not_migratable:
        if legacy.kind is StateKind.VALUE and (legacy.map_type or isinstance(legacy.value, OpaqueType)):
            raise RefusedError(f"{where} can't be migrated: {reason}")
        yield f"{where} can't be migrated: it is {reason}. {_migratable(states)}"
        return
    if legacy.ttl and state.ttl_ms is None:
        yield (
            f"{where} has TTL (its values have timestamps), but --ttl is missing: give the duration of the job's "
            "StateTtlConfig, which the savepoint doesn't contain"
        )
    yield from _ttl_in_vain(state, legacy, operator)
    if (new := states.get(state.new)) is not None:
        yield from _against_new(legacy, new, operator)
    if state.flag is not None and (flag := states.get(state.flag)) is not None:
        if flag.kind is not StateKind.VALUE:
            yield f"flag {flag.name} of operator {operator.label} is {flag.kind.value} state: a flag is a ValueState"
        elif flag.namespace != legacy.namespace:
            yield (
                f"flag {flag.name} of operator {operator.label} is per {type_name(flag.namespace)}, {legacy.name} per "
                f"{type_name(legacy.namespace)}: a flag says for one key and namespace that its map was moved"
            )


def _migratable(states: dict[str, KeyedState]) -> str:
    names = [state.name for state in states.values() if state.why_not_migratable is None or may_hold(state)]
    return f"Can be migrated: {', '.join(names) or 'none'}"


def _ttl_in_vain(state: StatePlan, there: KeyedState, operator: Operator) -> Iterator[str]:
    """Yields a problem if the plan has a TTL for a state without TTL: the legacy state, or the new state alone."""
    if not there.ttl and state.ttl_ms is not None:
        yield (
            f"state {there.name} of operator {operator.label} has no TTL (its values have no timestamps), but the "
            f"run has --ttl {format_duration(state.ttl_ms)}: leave it out. TTL on one side only is the "
            "most common reason why Flink rejects a restore"
        )


def _against_new(legacy: KeyedState, new: KeyedState, operator: Operator) -> Iterator[str]:
    """Yields why the legacy state can't become the existing new state, which the job has begun to fill.

    Whether their serializers fit is checked later, when the two states are described as one.
    """
    if new.kind is not StateKind.MAP:
        yield f"state {new.name} of operator {operator.label} is {new.kind.value} state: the new state is a MapState"
    elif new.ttl != legacy.ttl:
        one, other = (legacy, new) if legacy.ttl else (new, legacy)
        yield (
            f"state {one.name} of operator {operator.label} has TTL, {other.name} has none: TTL on one side only is "
            "the most common reason why Flink rejects a restore. Give both or neither TTL in the job, and take a new "
            "savepoint"
        )


class TargetContent(Enum):
    """What the target folder holds, if this run may continue there."""

    NOTHING = "nothing"
    FILES_OF_THIS_RUN = "files of this run"
    THIS_PUBLICATION = "this publication"


def target_content(
    target: str, *, claimed: bool, published_metadata: bytes | None = None, run_id: str = ""
) -> TargetContent:
    """Finds what the target holds, and refuses anything that isn't this run's.

    `claimed` says whether this run has begun to write there before. `published_metadata` is the `_metadata` that this
    run has published or will publish. A claim of the run `run_id` doesn't count.
    """
    folder = Location.of(target)
    names = [entry.name for entry in folder.entries() if not run_id or claimed_by(entry.name) != run_id]
    if not names and folder.is_file():
        raise UsageError(f"target {folder.shown} is a file; a savepoint is a folder: choose another target")
    foreign = sorted(name for name in names if name != METADATA and not is_state_file(name))
    if foreign:
        raise UsageError(f"target {folder.shown} is not empty, it holds {foreign[0]}: choose another target")
    if METADATA in names:
        if published_metadata is not None and folder.child(METADATA).read() == published_metadata:
            return TargetContent.THIS_PUBLICATION
        raise UsageError(f"target {folder.shown} already holds another savepoint: choose another target")
    if names and not claimed:
        raise UsageError(
            f"target {folder.shown} holds state files of another run that was not published: continue that run "
            "(give its command again), remove the files, or choose another target"
        )
    return TargetContent.FILES_OF_THIS_RUN if names else TargetContent.NOTHING


def claim_target(target: str, run_id: str, *, claimed: bool) -> None:
    """Says in the target that this run writes there, and refuses a target that another run has claimed.

    Two runs of different jobs or homes may find the same target empty at the same time, and their files have the same
    names. Each writes its claim first, and then looks for others, so at least one of them sees the other.
    """
    folder = Location.of(target)
    own = folder.child(claim_name(run_id))
    folder.make_folder()
    own.write_atomically(b"")
    try:
        for other in {claimed_by(entry.name) for entry in folder.entries()} - {run_id, None}:
            raise UsageError(
                f"target {folder.shown} is claimed by run {other}, which is not this one ({run_id}): "
                "give each run its own target. If that run has ended and is not to go on, remove the files"
            )
        target_content(target, claimed=claimed, run_id=run_id)
    except UsageError:
        own.remove()
        raise
