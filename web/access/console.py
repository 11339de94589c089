"""What the console's routes need of their caller, beside the table of the others."""

from __future__ import annotations

from collections.abc import Mapping

from engine.access.principals import Action

NEEDS: Mapping[str, Action] = {
    "GET /console/live": Action.INSPECT,
    "GET /console/series": Action.INSPECT,
    "GET /console/queues": Action.INSPECT,
    "GET /console/devices": Action.INSPECT,
    "GET /console/requests": Action.INSPECT,
    "GET /console/requests/{request}": Action.INSPECT,
    "GET /console/playground": Action.CALL,
    "GET /console/recordings": Action.INSPECT,
    "POST /console/recordings": Action.OPERATE,  # content, trimming and deleting: only who administers
    "POST /console/recordings/import": Action.ADMINISTER,
    "GET /console/recordings/{recording}": Action.INSPECT,
    "GET /console/replays": Action.INSPECT,
    "POST /console/replays": Action.OPERATE,
    "GET /console/replays/{replay}": Action.INSPECT,
    "POST /console/replays/{replay}/stop": Action.OPERATE,
    "GET /console/replays/{replay}/report.{form}": Action.INSPECT,
    "GET /console/plans": Action.INSPECT,
    "POST /console/plans": Action.OPERATE,
    "GET /console/plans/compare": Action.INSPECT,
    "GET /console/plans/{plan}": Action.INSPECT,
    "POST /console/plans/{plan}/stop": Action.OPERATE,
    "GET /console/plans/{plan}/plan.json": Action.INSPECT,
    "GET /console/audit": Action.INSPECT,
    "GET /console/settings": Action.INSPECT,
    "GET /console/people": Action.ADMINISTER,
    "POST /console/people": Action.ADMINISTER,
    "GET /console/entries": Action.ADMINISTER,
    "POST /console/entries": Action.ADMINISTER,
    "POST /console/bulk": Action.OPERATE,
    "GET /console/act": Action.OPERATE,
    "POST /console/do": Action.OPERATE,
    "GET /console/models/{model}": Action.INSPECT,
}
