"""The demo provider's uploads and batches: what can be cancelled, and has no call to delete it.

Paths, shapes and statuses follow OpenAI's own OpenAPI document ("OpenAI API", version 2.3.0): there is no GET of an
upload; a batch that is cancelled is `cancelling` for a while, and has the files of its partial results once it is
`cancelled`. A batch that was cancelled before is answered as it is (BerriAI/litellm#36034), one that ended otherwise
refused with 409. What a completed upload is told is not documented; here it is 400.
"""

from collections.abc import Callable, Mapping
from typing import Any

from expunge.worker.demo_provider_objects import CREATED, ApiError, Json, Project, Request, file_object, new_id

Route = tuple[str, str, Callable[..., Json]]

RUNNING = ("validating", "in_progress", "finalizing")


def _upload(project: Project, id: str) -> Json:
    if id not in project.uploads:
        raise ApiError(404, f"No such Upload object: {id}")
    return project.uploads[id]


def _pending(project: Project, id: str) -> Json:
    upload = _upload(project, id)
    if upload["status"] != "pending":
        raise ApiError(400, f"Upload '{id}' is not pending: its status is '{upload['status']}'.")
    return upload


def upload_object(id: str, given: Mapping[str, Any]) -> Json:
    wanted = {"bytes": 0, "filename": "file.txt", "purpose": "user_data", "status": "pending", **given}
    return {"id": id, "object": "upload", "created_at": CREATED, "expires_at": CREATED + 3600, **wanted}


def create_upload(project: Project, request: Request) -> Json:
    given, id = request.json(), new_id("upload_")
    project.uploads[id] = upload_object(id, {name: given[name] for name in ("bytes", "filename", "purpose")})
    return project.uploads[id]


def add_part(project: Project, request: Request, id: str) -> Json:
    _pending(project, id)
    return {"id": new_id("part_"), "object": "upload.part", "created_at": CREATED, "upload_id": id}


def complete_upload(project: Project, request: Request, id: str) -> Json:
    upload, file = _pending(project, id), new_id("file-")
    project.files[file] = file_object(file, upload["filename"], upload["bytes"], upload["purpose"])
    upload["status"] = "completed"
    return {**upload, "file": project.files[file]}


def cancel_upload(project: Project, request: Request, id: str) -> Json:
    if _upload(project, id)["status"] != "cancelled":
        _pending(project, id)["status"] = "cancelled"
    return project.uploads[id]


def _batch(project: Project, id: str) -> Json:
    if id not in project.batches:
        raise ApiError(404, f"No batch found with id '{id}'.")
    return project.batches[id]


def batch_object(id: str, given: Mapping[str, Any]) -> Json:
    wanted = {"endpoint": "/v1/responses", "completion_window": "24h", "status": "in_progress", **given}
    files = {"input_file_id": f"file-{id}-input", "output_file_id": None, "error_file_id": None}
    return {"id": id, "object": "batch", "created_at": CREATED, "errors": None, "metadata": {}, **files, **wanted}


def create_batch(project: Project, request: Request) -> Json:
    given, id = request.json(), new_id("batch_")
    if given.get("input_file_id") not in project.files:
        raise ApiError(400, "Invalid 'input_file_id'.", param="input_file_id")
    project.batches[id] = batch_object(id, {**given, "status": "validating"})
    return project.batches[id]


def get_batch(project: Project, request: Request, id: str) -> Json:
    batch = _batch(project, id)
    if batch["status"] == "cancelling":
        left = project.cancelling.get(id, 0)
        if left == 0:
            end_batch(project, id, "cancelled")
        elif left > 0:
            project.cancelling[id] = left - 1
    return batch


def end_batch(project: Project, id: str, status: str) -> None:
    """Give it this status, with an output and an error file."""
    made = {"output_file_id": f"file-{id}-output", "error_file_id": f"file-{id}-errors"}
    for file in made.values():
        project.files[file] = file_object(file, "results.jsonl", 0, "batch_output")
    project.batches[id].update(made, status=status)


def cancel_batch(project: Project, request: Request, id: str) -> Json:
    batch = _batch(project, id)
    if batch["status"] in RUNNING:
        batch["status"] = "cancelling"
        project.cancelling[id] = project.modes.cancelling
    elif batch["status"] not in ("cancelling", "cancelled"):
        raise ApiError(409, f"Cannot cancel a batch with status '{batch['status']}'.")
    return batch


CANCEL_ROUTES: tuple[Route, ...] = (
    ("POST", "/uploads", create_upload),
    ("POST", "/uploads/{}/parts", add_part),
    ("POST", "/uploads/{}/complete", complete_upload),
    ("POST", "/uploads/{}/cancel", cancel_upload),
    ("POST", "/batches", create_batch),
    ("GET", "/batches/{}", get_batch),
    ("POST", "/batches/{}/cancel", cancel_batch),
)


def seed_cancel(project: Project, wanted: Mapping[str, Any]) -> None:
    """Make uploads and batches with known ids, each with what is to be said of it; a batch with its files."""
    for id, given in _mapping(wanted.get("uploads", ())).items():
        project.uploads[id] = upload_object(id, given)
    for id, given in _mapping(wanted.get("batches", ())).items():
        batch = project.batches[id] = batch_object(id, given)
        for name in ("input_file_id", "output_file_id", "error_file_id"):
            if batch[name]:
                project.files[batch[name]] = file_object(batch[name], "batch.jsonl", 0, "batch")


def _mapping(wanted: Any) -> Mapping[str, Any]:
    return wanted if isinstance(wanted, Mapping) else {id: {} for id in wanted}
