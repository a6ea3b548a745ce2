"""A file of ``ghofl export`` behind HTTP: POST /predict, and no state between requests."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from ghofl import __version__
from ghofl.errors import MissingExtraError, SampleError
from ghofl.export.exported import KINDS, Exported, Predictions
from ghofl.names import shown
from ghofl.samples.images import decode

try:
    from fastapi import FastAPI, HTTPException, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from pydantic import BaseModel, ConfigDict, Field, create_model
except ImportError:
    raise MissingExtraError("a service needs fastapi and uvicorn: pip install 'ghofl[serve]'") from None

FLOAT = Annotated[float, Field(allow_inf_nan=False)]
LONGEST_TEXT = 100_000
MOST_PIXELS = 40_000_000
MOST_NAMED = 5  # wrong fields that an answer names


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The most that one request may hold."""

    samples: int = 256
    body: int = 16 * 2**20


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
    answer to an invalid one says what is wrong without repeating it. Requests are neither kept nor logged.
    """
    limits, plural = limits or ServiceLimits(), KINDS[model.kind]
    limit = None if reject is None else model.novelty_threshold(reject)
    app = FastAPI(
        title="ghofl",
        version=__version__,
        description=f"Predictions of {model.about.get('head')!r} for {plural}: {len(model.classes)} classes.",
    )
    app.add_middleware(_Limited, most=limits.body)
    app.add_exception_handler(RequestValidationError, _wrong_fields)
    body = _body_of(model, limits)

    @app.post("/predict", responses={413: {"description": "The body is too large."}})
    def predict(samples: body) -> Answer:  # type: ignore[valid-type]
        """Labels and probabilities of samples."""
        given = getattr(samples, plural)
        try:
            found = model.predict(_Images(list(enumerate(given))) if model.kind == "image" else given)
        except SampleError as error:
            raise HTTPException(422, str(error)) from None
        return Answer(classes=list(model.classes), predictions=_predictions(found, limit), novelty_threshold=limit)

    @app.get("/model")
    def about() -> dict[str, Any]:
        """What is served: the head, its classes, its recipe and its guarantee."""
        return {
            **{key: value for key, value in model.about.items() if key != "novelty_levels"},
            "takes": plural,
            "novelty_threshold": limit,
            "limits": {"samples": limits.samples, "body": limits.body},
        }

    @app.get("/health")
    def health() -> dict[str, str]:
        """Whether the service answers."""
        return {"status": "ok"}

    return app


def _body_of(model: Exported, limits: ServiceLimits) -> type[BaseModel]:
    """The body of a request: one list, named after what the file takes."""
    plural = KINDS[model.kind]
    one, words = {
        "row": (
            Annotated[list[FLOAT], Field(min_length=model.dim, max_length=model.dim)],
            f"Embeddings of {model.about.get('encoder')!r}: {model.dim} numbers each.",
        ),
        "image": (str, "Image files (JPEG, PNG, …) in base64."),
        "text": (Annotated[str, Field(max_length=LONGEST_TEXT)], "Texts."),
    }[model.kind]
    several = Annotated[list[one], Field(min_length=1, max_length=limits.samples, description=words)]
    return create_model("Samples", __config__=ConfigDict(extra="forbid"), **{plural: (several, ...)})  # type: ignore[call-overload]


class _Images(Sequence[Any]):
    """Numbered images in base64, decoded one at a time: a small file may hold many pixels."""

    def __init__(self, given: list[tuple[int, str]]) -> None:
        self._given = given

    def __len__(self) -> int:
        return len(self._given)

    def __getitem__(self, where: Any) -> Any:
        if isinstance(where, slice):
            return _Images(self._given[where])
        number, text = self._given[where]
        return _image(text, f"image {number}")


def _image(text: str, name: str) -> Any:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise SampleError(f"{name} is not base64; send the bytes of an image file, encoded.") from None
    return decode(data, name, MOST_PIXELS)


def _predictions(found: Predictions, limit: float | None) -> list[Prediction]:
    novelty = [None] * len(found.label) if found.novelty is None else found.novelty.tolist()
    return [
        Prediction(
            label=None if limit is not None and away is not None and away > limit else str(label),
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
    named = [f"{'.'.join(shown(part, 40) for part in one['loc'])}: {one['msg']}" for one in found[:MOST_NAMED]]
    more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    return JSONResponse({"detail": "; ".join([*named, *more])}, status_code=422)


class _Limited:
    """An app whose requests have bodies of at most `most` bytes, whatever their headers say."""

    def __init__(self, app: Any, most: int) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self.most:
            await JSONResponse({"detail": self._refusal}, status_code=413)(scope, receive, send)
            return
        seen = 0

        async def counted() -> Any:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.most:
                raise HTTPException(413, self._refusal)
            return message

        await self.app(scope, counted, send)

    @property
    def _refusal(self) -> str:
        return f"the body is larger than {self.most:,} bytes; send fewer samples at once."
