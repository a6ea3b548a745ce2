"""A photo in, its label and probabilities out, over HTTP: python examples/serve.py photos.onnx 8000

`ghofl export head.safetensors --encoder onnx:encoder.onnx -o photos.onnx` writes the file. It answers whoever reaches the
port, so put a proxy with passwords, TLS and a limit for bodies in front of it.

    pip install 'ghofl[onnx]' fastapi uvicorn python-multipart
"""

import json
import sys

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from ghofl.errors import SampleError
from ghofl.rows.images import decode

session = onnxruntime.InferenceSession(sys.argv[1])
classes = json.loads(session.get_modelmeta().custom_metadata_map["ghofl.classifier"])["classes"]
if [given.name for given in session.get_inputs()] != ["images"]:
    sys.exit(f"{sys.argv[1]} takes no photos; export the head with its encoder.")
app = FastAPI(title=sys.argv[1])


def inputs_of(sent: bytes) -> dict[str, np.ndarray]:
    """The inputs of the file for what somebody sent: a batch of one photo."""
    return {"images": decode(sent, "what was sent")[None]}


@app.post("/predict")
async def predict(request: Request) -> dict:
    """A photo as the body, or as the file `photo` of a form; the label is null where no class reaches its threshold."""
    sent = await request.body()
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        photo = (await request.form()).get("photo")
        sent = await photo.read() if isinstance(photo, UploadFile) else b""
    try:
        label, probabilities = await run_in_threadpool(session.run, ["label", "probabilities"], inputs_of(sent))
    except SampleError as error:
        raise HTTPException(422, str(error)) from None
    return {"label": label[0] or None, "probabilities": dict(zip(classes, probabilities[0].tolist()))}


uvicorn.run(app, port=int(sys.argv[2]))  # says where it listens
