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
    "GET /console/audit": Action.INSPECT,
    "GET /console/settings": Action.INSPECT,
    "GET /console/people": Action.ADMINISTER,
    "POST /console/people": Action.ADMINISTER,
    "GET /console/act": Action.OPERATE,
    "POST /console/do": Action.OPERATE,
    "GET /console/models/{model}": Action.INSPECT,
}
