"""What the server shows of itself, as clients of a gateway and of a worker read it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from engine.catalog import Catalog, ModelSpec
from engine.requests import Task
from engine.view import DeviceView, EngineView, ModelView
from web.wire import grammars

_OUTPUT = {Task.SCORE: "score", Task.EXTRACT: "json", Task.GENERATE: "text"}


def model_info(spec: ModelSpec, view: ModelView, aliases: Iterable[str]) -> dict[str, Any]:
    """One entry of `GET /v1/models`."""
    return {
        "name": spec.id,
        "loaded": view.state == "loaded",
        "state": view.state,
        "paused": view.paused,
        "last_error": view.last_error,
        "inputs": list(spec.inputs),
        "outputs": _outputs(spec),
        "dims": _dims(spec),
        "max_sequence_length": spec.max_tokens,
        "revision": next((source.revision for source in spec.sources if source.revision), None),
        "profiles": {name: {"is_default": name == "default"} for name in ("default", *spec.profiles)},
        "adapters": sorted(spec.loras),
        "capabilities": _capabilities(spec),
        "routing": {"policy": "local", "upstream_kind": None},
        "aliases": sorted(aliases),
        "tasks": [task.value for task in spec.tasks],
        "description": spec.description,
        "licence": spec.licence,
        "service_class": spec.service_class,
        "waiting": view.waiting,
        "in_flight": view.in_flight,
        "loads": view.loads,
        "evictions": view.evictions,
        "residencies": [
            {
                "unit": r.unit,
                "device": r.device,
                "state": r.state,
                "weights_bytes": r.weights_bytes,
                "floor_bytes": r.floor_bytes,
                "pinned": r.pinned,
                "why": r.why,
            }
            for r in view.residencies
        ],
    }


def models(catalog: Catalog, view: EngineView) -> list[dict[str, Any]]:
    seen = {model.id: model for model in view.models}
    return [
        model_info(spec, seen.get(spec.id, ModelView(spec.id, "available")), _aliases(catalog, spec.id))
        for spec in catalog
    ]


def ledger(device: DeviceView, view: EngineView) -> dict[str, Any]:
    """A device's books in bytes, and who holds its weights."""
    here = [r for model in view.models for r in model.residencies if r.device == device.name]
    return {
        **asdict(device),
        "used_bytes": device.used_bytes,
        "free_bytes": device.budget_bytes - device.used_bytes,
        "units": [asdict(residency) for residency in here],
    }


def worker(catalog: Catalog, view: EngineView, server: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The message of `/ws/status`. `now` is wall-clock time."""
    seen = {model.id: model for model in view.models}
    return {
        "timestamp": now,
        "ready": view.accepting,
        "name": "serai",
        "machine_profile": _kinds(view)[0] if view.devices else "",
        "pool_name": "",
        "gpu_count": _cards(view),
        "bundle": "default",
        "bundle_config_hash": "",
        "loaded_models": _loaded(view),
        "max_batch_requests": max((device.slots for device in view.devices), default=0),
        "saturated": _saturated(view),
        "server": {**server, "user": "", "working_dir": ""},  # nobody's business
        "recorder": asdict(view.recorder),
        "gpus": [_device(device) for device in view.devices],
        "models": [
            _model_status(spec, seen.get(spec.id, ModelView(spec.id, "available"))) for spec in catalog
        ],
    }


def cluster(view: EngineView, per_second: float, now: float) -> dict[str, Any]:
    """The message of `/ws/cluster-status`: a cluster of one."""
    return {
        "timestamp": now,
        "cluster": _summary(view, per_second),
        "workers": [_worker(view, "")],
        "models": _summaries(view),
    }


def gateway(view: EngineView, url: str, per_second: float) -> dict[str, Any]:
    """`GET /health`: this one server is its own gateway and worker."""
    return {
        "status": "healthy" if view.accepting else "degraded",
        "type": "gateway",
        "configured_gpu_types": _kinds(view),
        "live_gpu_types": _kinds(view),
        "cluster": _summary(view, per_second),
        "workers": [_worker(view, url)],
        "models": _summaries(view),
    }


def _summary(view: EngineView, per_second: float) -> dict[str, Any]:
    return {
        "worker_count": 1,
        "gpu_count": _cards(view),
        "models_loaded": len(_loaded(view)),
        "total_qps": per_second,
    }


def _worker(view: EngineView, url: str) -> dict[str, Any]:
    return {
        "name": "serai",
        "url": url,
        "gpu": _kinds(view)[0] if view.devices else "",
        "gpu_count": _cards(view),
        "ready_gpu_slots": sum(device.slots - device.busy_slots for device in view.devices),
        "healthy": view.accepting,
        "queue_depth": sum(model.waiting for model in view.models),
        "pending_cost": sum(model.waiting_cost for model in view.models),
        "inflight_batches": sum(device.busy_slots for device in view.devices),
        "loaded_models": _loaded(view),
        "memory_used_bytes": sum(device.used_bytes for device in view.devices),
        "memory_total_bytes": sum(device.budget_bytes for device in view.devices),
        "bundle": "default",
        "bundle_config_hash": "",
    }


def _summaries(view: EngineView) -> list[dict[str, Any]]:
    return [
        {
            "name": model.id,
            "state": model.state,
            "worker_count": int(model.state == "loaded"),
            "gpu_types": sorted(
                {r.device.partition(":")[0] for r in model.residencies if r.state == "ready"}
            ),
            "total_queue_depth": model.waiting,
        }
        for model in view.models
    ]


def _device(device: DeviceView) -> dict[str, Any]:
    share = device.budget_bytes / device.total_bytes if device.total_bytes else 0.0
    return {
        "device": device.name,
        "name": device.name,
        "gpu_type": device.kind,
        "utilization_pct": round(100 * device.busy_slots / device.slots) if device.slots else 0,
        "memory_used_bytes": device.used_bytes,
        "memory_total_bytes": device.total_bytes,
        "memory_threshold_pct": round(100 * share, 1),
        "budget_bytes": device.budget_bytes,
        "lines": device.lines,
    }


def _model_status(spec: ModelSpec, view: ModelView) -> dict[str, Any]:
    here = [r for r in view.residencies if r.state in ("ready", "leaving")]
    return {
        "name": spec.id,
        "state": view.state,
        "device": here[0].device if here else None,
        "memory_bytes": sum(r.weights_bytes for r in here),
        "config": {
            "hf_id": spec.id,
            "adapter": spec.family,
            "inputs": list(spec.inputs),
            "outputs": _outputs(spec),
            "dims": _dims(spec),
            "max_sequence_length": spec.max_tokens,
            "pooling": spec.pooling,
            "normalize": spec.normalize,
        },
        "queue_depth": view.waiting,
        "queue_pending_items": view.waiting,
        "in_flight": view.in_flight,
        "loads": view.loads,
        "evictions": view.evictions,
    }


def _outputs(spec: ModelSpec) -> list[str]:
    return [o.value for o in spec.outputs] + [_OUTPUT[task] for task in spec.tasks if task in _OUTPUT]


def _dims(spec: ModelSpec) -> dict[str, int]:
    return {kind.value: size for kind, size in spec.dims.items()}


def _capabilities(spec: ModelSpec) -> dict[str, Any] | None:
    if Task.GENERATE not in spec.tasks:
        return None
    offered = {"streaming": True, "grammar": list(grammars.KINDS), "tools": True}
    return {**offered, "code": False, "sql": False, "guard": False}


def _aliases(catalog: Catalog, model: str) -> list[str]:
    return [alias for alias, target in catalog.aliases.items() if target == model]


def _loaded(view: EngineView) -> list[str]:
    return [model.id for model in view.models if model.state == "loaded"]


def _kinds(view: EngineView) -> list[str]:
    return list(dict.fromkeys(device.kind for device in view.devices))


def _cards(view: EngineView) -> int:
    return sum(device.kind == "cuda" for device in view.devices)


def _saturated(view: EngineView) -> bool:
    """Whether what is held in host memory leaves little room for more."""
    return not view.accepting or (view.held_limit > 0 and view.held_bytes >= 0.9 * view.held_limit)
