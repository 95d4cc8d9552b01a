"""What a plan says of an upgrade of Flink: for which Flink the result is, and what an earlier upgrade lost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, StrictBool

from stateferry.runs.plan.option_marks import RUN, Kind, Option
from stateferry.runs.plan.plan_fields import (
    Name,
    Place,
    PlanModel,
    valid_declarations,
)

SAME_FLINK: Literal["same"] = "same"
FLINK_1: Literal["flink-1.20"] = "flink-1.20"


class UpgradeOptions(PlanModel):
    """The options of another Flink."""

    to: Annotated[
        Literal["same", "flink-1.20", "flink-2", "flink-2.3"],
        Option(
            Kind.CHOICE,
            "For which Flink",
            "the Flink of the new job: what Flink 1 gave to Kryo is written as Flink 2 does, and a state that it would "
            "still read wrongly stops the run before anything is written. flink-2 is the newest 2.x that was tried; "
            "same is the Flink that wrote the savepoint",
            row=163,
            section=RUN,
        ),
    ] = SAME_FLINK
    declared: Annotated[
        dict[Name, Name] | None,
        BeforeValidator(valid_declarations),
        Option(
            Kind.LINES,
            "Declared as",
            "if the result is for another Flink: how the job declares a state, or a field in it, that is a Map, List, "
            "Set or Collection: by a TypeHint (main/tags=List<String>), or by its class (main/tags=List); what values "
            "of flink-scala become (main/last=Tuple2<String, Long>); its keys, by flink-scala or with "
            "lists by Kryo (main/(key)=Tuple2<String, Long>)",
            row=164,
            section=RUN,
            metavar="OPERATOR/STATE=TYPE",
            if_empty="such states stop the run",
        ),
    ] = None
    all_by_kryo_5: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "All by Kryo 5",
            "if a savepoint of Flink 2 is written for Flink 1.20, or checked for Flink 2: the job was never upgraded "
            "from Flink 1 without --to, so Kryo 5 wrote all of its values. Else each value says which Kryo wrote it, "
            "and one of which nobody can tell stops the run",
            row=165,
            section=RUN,
        ),
    ] = False
    before: Annotated[
        Place | None,
        Option(
            Kind.TEXT,
            "A savepoint from before the upgrade",
            "if a job of Flink 1 was upgraded without --to: the savepoint of Flink 1 from which the upgraded job was "
            "restored, whose values say what the upgrade lost",
            row=167,
            section=RUN,
            metavar="OLD_SAVEPOINT",
            if_empty="what was lost isn't looked for",
        ),
    ] = None
    restore_lost: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Restore what was lost",
            "put back the entries that the upgrade lost, but nothing over a newer value",
            row=168,
            section=RUN,
        ),
    ] = False
    restore_keys: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Restore lost keys",
            "put back what the upgrade lost of keys whose rows are gone altogether, too",
            row=169,
            section=RUN,
        ),
    ] = False
