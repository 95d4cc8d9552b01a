"""What Airflow's page shows as the documentation of the DAG and of each of its tasks."""

from __future__ import annotations

DAG_DOC = """\
Takes a savepoint of a Flink job through these groups of tasks, and publishes a new savepoint from which the new job
starts. The graph shows what is in a group when you click on it.

1. **rehearsal** reads the savepoint, builds the new one, compares every entry and writes the tables, while the job
   runs. A night is this group alone.
2. **decide** asks a person; **wait_to_stop** waits until the job may be stopped. If the rehearsal is too old by then,
   **rehearsal_again** makes it once more. With format native, **catch_up** converts what has changed since, before the
   decision and right before the stop.
3. **outage** does all of it again on the savepoint with which the job is stopped, publishes exactly what was validated,
   and starts the new job. If that fails, **return_to_old_job** starts the old job again. A cut-over of a savepoint
   without a running job is this group alone; there **approve** asks a person.
4. **tables** follow. **conclude** says how the run ended: begin to read there.

The source is never changed. A task that a run doesn't need is skipped: the log of **plan** says why, and when the run
has ended so does the task's note.

*Trigger* with the form unchanged migrates the demo savepoint. `stateferry inspect SAVEPOINT` lists the operators and
states of a savepoint, by the names that the form wants.
"""

_AGAIN = "If its application is lost, Airflow tries again, and the step goes on where it was."

TASK_DOCS = {
    "plan": "Checks the form before any work, and says all that is wrong in it.\n\nIt chooses the savepoint, makes the "
    "run's folder and skips the tasks that this run doesn't need. Its log has the whole plan.",
    "check": "In mode *check only*: looks into the savepoint, and says what is in it, what can be migrated, and how "
    "long a cut-over would take.\n\nIts log has the answer, which is also kept under `checks/` in the home.",
    "take_savepoint": "Has Flink take a savepoint.\n\nFor a cut-over Flink stops the job with it; from then on the job "
    "stands still until the new job runs. Clearing this task doesn't take a second savepoint.",
    "application": "Has the Spark application that carries out the run's steps, so that Spark starts once.\n\nIf it is "
    "skipped, it couldn't start or was lost, and each step has an application of its own.",
    "hold_slot": "Has a slot of Airflow as long as the job may stand still: before the job is stopped, it must run.\n\n"
    "If a task of the cut-over waits for a slot, because a process was lost, that task gets this one.",
    "snapshot": f"Reads the savepoint once, counts its entries, and keeps digests of its bytes.\n\nIt refuses what a "
    f"later step could not handle, before anything is written. {_AGAIN}",
    "migrate": f"Writes the new savepoint from the bytes of the old one: each map becomes rows.\n\nAll other state is "
    f"carried over. {_AGAIN}",
    "rescale": f"If max parallelism changes: puts what migrate has written into the new key groups.\n\nWith work "
    f"*rescale only* it writes the new savepoint; else it has nothing to do. {_AGAIN}",
    "validate": f"Reads source and new savepoint again, and compares every entry, timestamp and key group.\n\nA red "
    f"report fails this task for good; its log names the checks that failed, with samples. {_AGAIN}",
    "catch_up": "With format native: converts and validates what has changed since the rehearsal, while the job runs, "
    "until little is left for the outage.\n\nIf that can't be, or isn't faster, it says why, and the cut-over converts "
    "everything. Right before the stop it is done once more; if it can't be then, the job isn't stopped.",
    "decide": "Asks a person whether to cut over, while the job still runs.\n\nThe question has the rehearsal's report "
    "and how long the job is likely to stand still.",
    "wait_to_stop": "Waits until the job may be stopped: for its window, if the request names one.\n\nThe job runs on "
    "meanwhile.",
    "approve": "Shows the report and asks a person.\n\nA no, or no answer in time, ends the run as rejected, for good.",
    "cut_over": "Publishes exactly what was validated, if the report is green.\n\nOne record in the catalog decides; "
    "clearing this task publishes nothing twice.",
    "start_job": "Starts the new job from the new savepoint, and waits for its first checkpoint.\n\nIf that doesn't "
    "come in time, return_to_old_job starts the old job again.",
    "tables": f"Writes the rows of new and changed keys into the tables, and compares them with the new "
    f"savepoint.\n\nIf it fails, nothing of a publication changes: remove the cause and clear this task. {_AGAIN}",
    "watch_outage": "If the request has an outage_limit or an outage_alert: waits beside the steps, without a worker."
    "\n\nIf the new job has completed no checkpoint by the limit, this task fails, and return_to_old_job starts the "
    "old job again. If the outage takes longer than predicted, by so much as outage_alert says, people are told.",
    "return_to_old_job": "After a failure: makes sure that the new job has ended, rolls back, and starts the old job."
    "\n\nOnce the new job has completed a checkpoint it changes nothing, and a person must decide.",
    "stop_asked": "Asks own tasks of the team to stop the job with a savepoint, when the job may be stopped.",
    "start_asked": "Asks own tasks of the team to start the new job from the published savepoint.",
    "return_asked": "After a failure: asks own tasks of the team to end the new job and start the old one again."
    "\n\nThen return_to_old_job rolls back. Nobody is asked once start_job knows that the new job has completed a "
    "checkpoint.",
    "conclude": "Shows the report and says how the run ended, or why it was refused.\n\nIt is green if and only if "
    "everything was done that was asked for.",
}
