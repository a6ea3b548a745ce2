"""A file of ``ghofl export`` behind HTTP: POST /predict, and no state between requests."""

import base64
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any

from ghofl import __version__
from ghofl.encoders.base import cores
from ghofl.errors import MissingExtraError, SampleError
from ghofl.export.exported import KINDS, Exported, Predictions
from ghofl.names import shorten
from ghofl.rows.images import decode, pixels_of

try:
    from fastapi import FastAPI, HTTPException, Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from fastapi.routing import APIRoute
    from pydantic import BaseModel, ConfigDict, FailFast, Field, create_model
    from pydantic_core import from_json
except ImportError:
    raise MissingExtraError("a service needs fastapi and uvicorn: pip install 'ghofl[serve]'") from None

from ghofl.web.arrival import WholeRequests

FLOAT = Annotated[float, Field(allow_inf_nan=False)]
LONGEST_TEXT = 100_000
MOST_PIXELS = 40_000_000
MOST_NAMED = 5  # wrong fields that an answer names
SMALL = 2**16  # bytes of a body that is parsed at once


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Maximum samples, bytes and pixels per request, and maximum concurrent requests."""

    samples: int = 256
    body: int = 16 * 2**20
    pixels: int = 160_000_000
    at_once: int = 32

    def of_kind(self, kind: str) -> dict[str, int]:
        """What clients should know of the limits where samples are of this kind."""
        pixels = {"pixels": self.pixels} if kind == "image" else {}
        return {"samples": self.samples, "body": self.body, **pixels}


class Prediction(BaseModel):
    """The prediction for one sample."""

    label: str | None = Field(description="The class, or null for a sample that fits none of them.")
    probability: float = Field(description="The probability of the most probable class.")
    probabilities: list[float] = Field(description="One number per class, in the order of `classes`.")
    novelty: float | None = Field(
        None, description="How far the sample is from all classes, if the head can measure it."
    )


class Answer(BaseModel):
    """Predictions in the order of the samples."""

    classes: list[str]
    predictions: list[Prediction]
    novelty_threshold: float | None = Field(None, description="Samples above it have no label.")


def service(model: Exported, reject: float | None = None, limits: ServiceLimits | None = None) -> FastAPI:
    """The app of a file: ``/predict``, ``/model``, ``/health``, and ``/docs`` with its OpenAPI page.

    With `reject`, a share such as 0.05, a sample gets no label if it is further from all classes than all but that share
    of the rows that belong to them.

    Guarantees
    ----------
    A request beyond `limits` is refused before it is read whole (413) or before anything is computed (422), and the
    answer to an invalid one says what is wrong without repeating it. Only requests that have arrived count as being at
    once; more of them than `limits.at_once` are told to come back (503). Large bodies are parsed and images classified by
    as many threads as there are cores, whatever the number of requests. Requests are neither kept nor logged.
    """
    limits, plural = limits or ServiceLimits(), KINDS[model.kind]
    limit = None if reject is None else model.novelty_threshold(reject)
    words = f"Predictions of {model.about.get('head')!r} for {plural}: {len(model.classes)} classes."
    app = FastAPI(title="ghofl", version=__version__, description=words)
    app.add_middleware(WholeRequests, most=limits.body, at_once=limits.at_once)
    app.add_exception_handler(RequestValidationError, _wrong_fields)
    body, gate = _body_of(model, limits), threading.BoundedSemaphore(cores())
    app.router.route_class = _route(_parser(model, limits, gate))

    @app.post("/predict", responses={413: {"description": "The body is too large."}})
    def predict(samples: body) -> Answer:  # type: ignore[valid-type]
        """Labels and probabilities of samples."""
        given = getattr(samples, plural)
        try:
            parts = _images(given, limits.pixels) if model.kind == "image" else [given]
            found = [one for part in parts for one in _predictions(_predicted(model, part, gate), limit)]
        except SampleError as error:
            raise HTTPException(422, str(error)) from None
        return Answer(classes=list(model.classes), predictions=found, novelty_threshold=limit)

    @app.get("/model")
    async def about() -> dict[str, Any]:
        """What is served: the head, its classes, its recipe and its guarantee."""
        return {
            **{key: value for key, value in model.about.items() if key != "novelty_levels"},
            "takes": plural,
            "novelty_threshold": limit,
            "limits": limits.of_kind(model.kind),
        }

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Whether the service answers."""
        return {"status": "ok"}

    return app


def _parser(model: Exported, limits: ServiceLimits, gate: threading.BoundedSemaphore) -> Callable[[bytes], Any]:
    """What parses a body: a small one at once, a large one once its marks are counted and a core is free."""
    plural, most = KINDS[model.kind], _most_marks(model, limits)

    def parse(data: bytes) -> Any:
        if len(data) <= SMALL:
            return _parse(data, plural, limits.samples)
        _check_marks(data, most, limits.samples)
        with gate:
            return _parse(data, plural, limits.samples)

    return parse


def _body_of(model: Exported, limits: ServiceLimits) -> type[BaseModel]:
    """The body of a request: one list, named after what the file takes."""
    plural = KINDS[model.kind]
    one, words = {
        "row": (
            Annotated[list[FLOAT], Field(min_length=model.dim, max_length=model.dim), FailFast()],
            f"Embeddings of {model.about.get('encoder')!r}: {model.dim} numbers each.",
        ),
        "image": (str, "Image files (JPEG, PNG, …) in base64."),
        "text": (Annotated[str, Field(max_length=LONGEST_TEXT)], "Texts."),
    }[model.kind]
    several = Annotated[list[one], Field(min_length=1, max_length=limits.samples, description=words), FailFast()]
    return create_model("Samples", __config__=ConfigDict(extra="forbid"), **{plural: (several, ...)})  # type: ignore[call-overload]


def _most_marks(model: Exported, limits: ServiceLimits) -> dict[bytes, int]:
    """How often marks of JSON can be in the body of a valid request; texts may hold any of them."""
    return {
        "row": {b"{": 1, b"[": limits.samples + 1, b",": limits.samples * model.dim},
        "image": {b"{": 1, b"[": 1, b",": limits.samples},
        "text": {},
    }[model.kind]


def _check_marks(data: bytes, most: dict[bytes, int], samples: int) -> None:
    """Refuse a large body that cannot be valid before it is parsed, which would keep all threads waiting."""
    if any(data.count(mark) > count for mark, count in most.items()):
        raise HTTPException(
            422, f"the body has more than {samples:,} samples, or more than samples; send fewer at once."
        )


def _route(parse: Callable[[bytes], Any]) -> type[APIRoute]:
    """Routes whose JSON bodies are parsed in a thread, so that a large one holds up nobody."""

    class Body(Request):
        async def json(self) -> Any:
            return await run_in_threadpool(parse, await self.body())

    class Route(APIRoute):
        def get_route_handler(self) -> Callable[..., Any]:
            handle = super().get_route_handler()

            async def handle_body(request: Request) -> Any:
                if request.method == "POST":
                    _check_type(request.headers.get("content-type", ""))
                return await handle(Body(request.scope, request.receive))

            return handle_body

    return Route


def _check_type(kind: str) -> None:
    """Refuse a body that is not called JSON, as what ``curl -d`` sends unless told otherwise."""
    if "json" not in kind.partition(";")[0].lower():
        said = f"called {shorten(kind, 40)}" if kind else "without a type"
        raise HTTPException(415, f"the body is {said}; send JSON with the header content-type: application/json.")


def _parse(data: bytes, key: str, samples: int) -> Any:
    """The values of a body, which has one key; one list too long is cut, as it is refused anyway."""
    try:
        values = from_json(data)
    except ValueError as error:
        raise HTTPException(422, f"the body is not JSON: {shorten(error)}.") from None
    if not isinstance(values, dict):
        return []
    others = [name for name in values if name != key]
    if others:
        named = [f"body.{shorten(name, 40)}: Extra inputs are not permitted" for name in others[:MOST_NAMED]]
        missing = [] if key in values else [f"body.{key}: Field required"]
        raise HTTPException(422, _joined([*missing, *named], len(missing) + len(others)))
    given = values.get(key)
    return {key: given[: samples + 1]} if isinstance(given, list) else values


def _images(given: Sequence[str], most: int) -> list["_Images"]:
    """The images of a request one by one, of at most `most` pixels together by what their headers say."""
    files = [(f"image {number}", _unpacked(text, f"image {number}")) for number, text in enumerate(given)]
    pixels = 0
    for name, data in files:
        pixels += pixels_of(data, name, MOST_PIXELS)
        if pixels > most:
            raise SampleError(
                f"{name} and those before it have {pixels:,} pixels, and {most:,} are allowed; send fewer."
            )
    return [_Images([file]) for file in files]


def _unpacked(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise SampleError(f"{name} is not base64; send the bytes of an image file, encoded.") from None


class _Images(Sequence[Any]):
    """Files of images by name, decoded one at a time when they are looked at: a small file may hold many pixels."""

    def __init__(self, files: list[tuple[str, bytes]]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, where: Any) -> Any:
        if isinstance(where, slice):
            return _Images(self._files[where])
        name, data = self._files[where]
        return decode(data, name, MOST_PIXELS)


def _predicted(model: Exported, samples: Sequence[Any], gate: threading.BoundedSemaphore) -> Predictions:
    """Predictions, of images behind the gate: a large one takes much memory until it is resized."""
    with gate if model.kind == "image" else nullcontext():
        return model.predict(samples)


def _predictions(found: Predictions, limit: float | None) -> list[Prediction]:
    novelty = [None] * len(found.label) if found.novelty is None else found.novelty.tolist()
    return [
        Prediction(
            label=None if limit is not None and away is not None and away > limit else str(label) or None,
            probability=max(row),
            probabilities=row,
            novelty=away,
        )
        for label, row, away in zip(found.label, found.probabilities.tolist(), novelty, strict=True)
    ]


async def _wrong_fields(request: Request, error: Exception) -> JSONResponse:
    """What is wrong and where, without repeating what was sent."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    named = [f"{'.'.join(shorten(part, 40) for part in one['loc'])}: {one['msg']}" for one in found[:MOST_NAMED]]
    return JSONResponse({"detail": _joined(named, len(found))}, status_code=422)


def _joined(named: list[str], count: int) -> str:
    return "; ".join([*named, *([f"and {count - len(named)} more"] if count > len(named) else [])])
