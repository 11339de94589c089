"""`/v1/audio/transcriptions` and `/v1/audio/translations`: recordings to text, with times where wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from engine.requests import Extracted, ExtractOptions, Item, Media, Response
from web.wire import answers
from web.wire.bodies import Asked
from web.wire.openai.complaints import wrong

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
SEGMENT = "segment"


@dataclass(frozen=True, slots=True)
class Recorded(Asked):
    """A recording, and how its text is wanted."""

    model: str = ""
    form: str = "json"


def read(fields: Mapping[str, Sequence[str]], data: bytes, name: str, task: str) -> Recorded:
    """The fields of a form, those that came twice twice. Raises InvalidInput naming a wrong one."""
    said = {key.removesuffix("[]"): values for key, values in fields.items()}
    one = {key: values[-1] for key, values in said.items()}
    if not one.get("model"):
        raise wrong("model", "The form has no field with the name model.")
    form = one.get("response_format") or "json"
    if form not in FORMATS:
        raise wrong(
            "response_format", f"response_format is {form[:100]!r}; it is one of {', '.join(FORMATS)}."
        )
    if one.get("stream", "false").lower() == "true":
        raise wrong("stream", "A transcription is sent whole; leave stream out.")
    if one.get("lora_id"):
        raise wrong("lora_id", "lora_id is not read here: name the adapter in lora_adapter.")
    for each in said.get("timestamp_granularities", ()):
        if each != SEGMENT:
            raise wrong("timestamp_granularities", "Times are told of segments only, not of words.")
    extra: dict[str, Any] = {"task": task, "temperature": _temperature(one.get("temperature"))}
    extra |= {key: one[key] for key in ("language", "prompt") if one.get(key)}
    lora = one.get("lora_adapter") or None
    item = Item(audio=Media(data, name.rpartition(".")[2].lower() or None))
    return Recorded((item,), ExtractOptions(extra=extra, lora=lora), model=one["model"], form=form)


def _temperature(said: str | None) -> float:
    try:
        return float(said or 0)
    except ValueError:
        raise wrong("temperature", "temperature is a number between 0 and 1.") from None


def answer(asked: Recorded, response: Response) -> tuple[bytes, str]:
    """The body and its media type. Raises what went wrong with the recording."""
    (output,) = answers.outputs_of(Extracted, asked.items, response)
    found = output.data
    segments: Sequence[Mapping[str, Any]] = found.get("segments", ())
    match asked.form:
        case "text":
            return f"{found['text']}\n".encode(), "text/plain"
        case "srt":
            return _srt(segments).encode(), "text/plain"
        case "vtt":
            return _vtt(segments).encode(), "text/vtt"
        case "verbose_json":
            return orjson.dumps(_verbose(found, segments)), "application/json"
    seconds = -(-response.usage.audio_ms // 1000)
    return orjson.dumps(
        {"text": found["text"], "usage": {"type": "duration", "seconds": seconds}}
    ), "application/json"


def _verbose(found: Mapping[str, Any], segments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """OpenAI's fields, but those that nobody measured here."""
    return {
        "task": found["task"],
        "language": found["language"],
        "duration": found["duration"],
        "text": found["text"],
        "segments": [{**segment, "seek": int(float(segment["start"]) * 100)} for segment in segments],
    }


def _srt(segments: Sequence[Mapping[str, Any]]) -> str:
    return "".join(
        f"{number}\n{_clock(each['start'], ',')} --> {_clock(each['end'], ',')}\n{_line(each)}\n\n"
        for number, each in enumerate(segments, 1)
    )


def _vtt(segments: Sequence[Mapping[str, Any]]) -> str:
    cues = (f"{_clock(e['start'], '.')} --> {_clock(e['end'], '.')}\n{_line(e)}\n\n" for e in segments)
    return "WEBVTT\n\n" + "".join(cues)


def _line(segment: Mapping[str, Any]) -> str:
    """A cue ends at an empty line, and its times have an arrow."""
    return " ".join(str(segment["text"]).split()).replace("-->", "->")


def _clock(seconds: float, point: str) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{thousandths:03}"
