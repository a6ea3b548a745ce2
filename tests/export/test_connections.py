"""A service under clients that wait, drip, or send more than they should: others are answered. Real sockets."""

import asyncio
import base64
import io
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import uvicorn
from fastapi import HTTPException
from fastapi.testclient import TestClient

from ghofl.export import service as room
from ghofl.export.exported import Exported
from ghofl.export.service import ServiceLimits, service
from ghofl.web import arrival
from ghofl.web.connections import MOST_CHUNKS, connections
from ghofl.web.server import listen, server_of

PREDICT = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def row_model(before=lambda: None) -> Exported:
    """A file that takes rows of two numbers, without its network."""

    def run(rows):
        before()
        shares = np.full((len(rows), 2), 0.5)
        return [np.array(["a"] * len(rows), dtype=object), shares, shares]

    return Exported("row", 2, ("a", "b"), {"head": "half"}, None, run)


def image_model() -> Exported:
    """A file that takes images, without its network."""

    def run(images):
        shares = np.array([image.reshape(-1, 3).mean(axis=0)[:2] / 255 for image in images])
        return [np.array(["a"] * len(shares), dtype=object), shares, shares]

    return Exported("image", 3, ("a", "b"), {"head": "colours"}, None, run)


def png(height, width) -> str:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.zeros((height, width, 3), dtype=np.uint8)).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


@contextmanager
def running(app, seconds=30.0, most=128):
    """A server in a thread of this process; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        protocol = connections(seconds, most)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, http=protocol, ws="none", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            thread.join(30)
            assert not thread.is_alive()


def ask(port):
    body = json.dumps({"rows": [[0.0, 1.0]]}).encode()
    wanted = urllib.request.Request(
        f"http://127.0.0.1:{port}/predict", body, {"content-type": "application/json", "connection": "close"}
    )
    with urllib.request.urlopen(wanted, timeout=60) as answer:
        return json.load(answer)["predictions"][0]["label"]


def connected(port):
    link = socket.create_connection(("127.0.0.1", port))
    link.settimeout(30)
    return link


def end_of(link):
    """What a connection says before it ends."""
    try:
        return b"".join(iter(lambda: link.recv(4096), b""))
    except ConnectionResetError:
        return b""


def test_connections_that_wait_give_way_to_new_ones():
    with running(service(row_model()), most=4) as port:
        idle = [connected(port) for _ in range(12)]
        try:
            assert ask(port) == "a"
            assert [end_of(link) for link in idle[:8]] == [b""] * 8, "the ones that waited longest are closed"
            idle[-1].sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert b'"ok"' in end_of(idle[-1])
        finally:
            for link in idle:
                link.close()


STARTS = {
    "a header": PREDICT + b"x: ",
    "a body": PREDICT + b"content-length: 1000\r\n\r\n{",
    "a body in chunks": PREDICT + b"transfer-encoding: chunked\r\n\r\nfff\r\n{",
    "a second request": b"GET /health HTTP/1.1\r\nhost: x\r\n\r\nGET /he",
    "a body too large": PREDICT + b"content-length: 99999999\r\n\r\n{",
}


def is_cut(link):
    """Whether the other side ends a connection that sends a byte now and then."""
    try:
        for _ in range(500):
            link.sendall(b"a")
            time.sleep(0.02)
    except OSError:
        return True
    return False


@pytest.mark.parametrize("start", STARTS)
def test_a_request_has_one_deadline_however_many_bytes_of_it_came(start):
    with running(service(row_model()), seconds=0.3) as port, connected(port) as slow:
        slow.sendall(STARTS[start])
        assert is_cut(slow)
        assert ask(port) == "a"


@pytest.mark.parametrize("start", [b"content-length: 1000\r\n\r\n{", b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"])
def test_a_request_whose_body_does_not_come_is_told(start):
    with running(service(row_model()), seconds=0.2) as port, connected(port) as slow:
        slow.sendall(PREDICT + start)
        told = end_of(slow)
    assert told.startswith(b"HTTP/1.1 408")
    assert b"did not arrive in time" in told


def test_a_server_that_ends_gives_up_requests_that_are_not_there_yet(caplog):
    """It would wait for them, and then fill its administrator's terminal with an error for each."""
    with listen("127.0.0.1", 0) as listening, ExitStack() as stack:
        server = server_of(service(row_model()))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        slow = [stack.enter_context(connected(listening.getsockname()[1])) for _ in range(3)]
        for link, start in zip(slow, ("a header", "a body", "a body in chunks"), strict=True):
            link.sendall(STARTS[start])
        while len(server.server_state.tasks) < 2:
            assert thread.is_alive()
            time.sleep(0.01)
        server.should_exit = True
        told = [end_of(link) for link in slow]
        thread.join(30)
    assert [text[:12] for text in told] == [b"", *[b"HTTP/1.1 408"] * 2]
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_an_answer_that_nobody_reads_is_given_up():
    is_over = threading.Event()

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            await send({"type": "http.response.body", "body": bytes(2**26)})
        finally:
            is_over.set()

    with running(app, seconds=0.2) as port, connected(port) as idle:
        idle.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert is_over.wait(30)


def test_more_requests_than_are_answered_at_once_are_told_to_come_back():
    is_busy, may_go = threading.Event(), threading.Event()

    def wait():
        is_busy.set()
        assert may_go.wait(30)

    client = TestClient(service(row_model(wait), limits=ServiceLimits(at_once=1)))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, "/predict", json={"rows": [[0.0, 1.0]]})
        try:
            assert is_busy.wait(30)
            second = client.post("/predict", json={"rows": [[0.0, 1.0]]})
            assert (second.status_code, second.headers["retry-after"]) == (503, "1")
            assert client.get("/health").json() == {"status": "ok"}
        finally:
            may_go.set()
        assert first.result().status_code == 200
    assert client.post("/predict", json={"rows": [[0.0, 1.0]]}).status_code == 200


def test_bodies_that_are_arriving_give_way_to_new_ones():
    """Each of nine requests sends the largest body but for its end: the first one is given up, the others wait on."""
    answers, limited = {}, arrival.WholeRequests(None, most=10, at_once=32)

    async def one(number):
        messages = [{"type": "http.request", "body": bytes(10), "more_body": True}]

        async def receive():
            return messages.pop() if messages else await asyncio.Event().wait()

        async def send(message):
            answers.setdefault(number, message.get("status"))

        await limited({"type": "http", "method": "POST", "headers": []}, receive, send)

    async def all_of_them():
        tasks = [asyncio.create_task(one(number)) for number in range(arrival.BODIES + 1)]
        await tasks[0]
        assert sum(limited.arriving.values()) == arrival.BODIES * 10
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(all_of_them())
    assert answers == {0: 503}
    assert not limited.arriving


def test_unknown_keys_are_refused_before_anything_is_validated():
    many = json.dumps(dict.fromkeys((f"k{i}" for i in range(1000)), 1)).encode()
    with pytest.raises(HTTPException) as refused:
        room._parse(many, "rows", 256)
    assert refused.value.detail.startswith("body.rows: Field required; body.k0: Extra inputs are not permitted")
    assert refused.value.detail.endswith("and 995 more")
    assert room._parse(b'{"rows": [1, 2, 3, 4]}', "rows", 2) == {"rows": [1, 2, 3]}, "one too many is enough"


@pytest.mark.parametrize("sample", [b"[]", b"{}", b"[0, 0]", b'"AAAA"'])
@pytest.mark.parametrize("model", ["row", "image"])
def test_a_large_body_of_more_samples_than_allowed_is_refused_before_it_is_parsed(model, sample, monkeypatch):
    monkeypatch.setattr(room, "from_json", lambda data: pytest.fail("it was parsed"))
    client = TestClient(service({"row": row_model, "image": image_model}[model]()))
    body = b'{"%ss": [' % model.encode() + b", ".join([sample] * 20_000) + b"]}"
    refused = client.post("/predict", content=body, headers={"content-type": "application/json"})
    assert refused.status_code == 422
    assert "more than 256 samples" in refused.json()["detail"]


@pytest.mark.parametrize("separator", [",", ", "])
def test_a_large_body_of_as_many_samples_as_allowed_is_taken(separator):
    body = json.dumps({"rows": [[0.1234567890123456789, 1e-300]] * 4000}, separators=(separator, ": ")).encode()
    client = TestClient(service(row_model(), limits=ServiceLimits(samples=4000)))
    assert len(body) > room.SMALL
    assert client.post("/predict", content=body, headers={"content-type": "application/json"}).status_code == 200


def test_a_small_body_does_not_wait_for_large_ones(monkeypatch):
    monkeypatch.setattr(room, "cores", lambda: 1)
    is_parsed, may_go, from_json = threading.Event(), threading.Event(), room.from_json

    def parse(data):
        if len(data) > room.SMALL:
            is_parsed.set()
            assert may_go.wait(30)
        return from_json(data)

    monkeypatch.setattr(room, "from_json", parse)
    client = TestClient(service(row_model()))
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(client.post, "/predict", json={"rows": [[0.0, 1.0]], "k" * room.SMALL: 1})
        try:
            assert is_parsed.wait(30)
            assert client.post("/predict", json={"rows": [[0.0, 1.0]]}).status_code == 200
        finally:
            may_go.set()
        assert large.result().status_code == 422


def test_a_body_in_very_many_chunks_is_given_up():
    chunks = b"1\r\n \r\n" * 2 * MOST_CHUNKS
    with running(service(row_model())) as port, connected(port) as busy:
        busy.sendall(PREDICT + b"transfer-encoding: chunked\r\n\r\n" + chunks)
        assert end_of(busy)[:12] in (b"HTTP/1.1 400", b"")  # the system drops the answer where bytes are left unread
        assert ask(port) == "a"


def test_the_chunks_of_a_body_are_counted_for_every_request_anew():
    body = b'{"rows": [[0.0, 1.0]]' + b" " * (MOST_CHUNKS // 2) + b"}"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    one = PREDICT + b"transfer-encoding: chunked\r\n\r\n" + chunks
    with running(service(row_model())) as port, connected(port) as link:
        link.sendall(one * 2 + one.replace(b"host: x", b"host: x\r\nconnection: close"))
        assert end_of(link).count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain"])
def test_a_body_that_is_not_called_json_is_told_to_be(kind):
    headers = {} if kind is None else {"content-type": kind}
    refused = TestClient(service(row_model())).post("/predict", content=b'{"rows": [[0.0, 1.0]]}', headers=headers)
    assert refused.status_code == 415
    assert "content-type: application/json" in refused.json()["detail"]


def test_a_request_with_many_mistakes_is_refused_at_the_first():
    client = TestClient(service(row_model()))
    refused = client.post("/predict", json={"rows": [["x", "y"]] * 200})
    assert refused.status_code == 422
    assert refused.json()["detail"].count("body.rows") == 1


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"rows": ' + b"[" * 100_000, b"{", b'{"rows": 1' + b"0" * 5000 + b"}"]
)
def test_a_body_that_is_not_json_of_a_request_is_refused(body):
    client = TestClient(service(row_model()))
    assert client.post("/predict", content=body, headers={"content-type": "application/json"}).status_code == 422


def test_the_images_of_a_request_have_a_budget_of_pixels_that_is_checked_before_any_is_decoded(monkeypatch):
    client = TestClient(service(image_model(), limits=ServiceLimits(pixels=50)))
    assert client.post("/predict", json={"images": [png(4, 5)] * 2}).status_code == 200
    assert client.get("/model").json()["limits"]["pixels"] == 50
    monkeypatch.setattr(room, "decode", lambda *_: pytest.fail("an image was decoded"))
    refused = client.post("/predict", json={"images": [png(4, 5)] * 3})
    assert refused.status_code == 422
    assert "image 2 and those before it have 60 pixels, and 50 are allowed" in refused.json()["detail"]


def test_images_that_need_a_program_to_be_read_are_not_read():
    client = TestClient(service(image_model()))
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n%%EOF\n"
    refused = client.post("/predict", json={"images": [base64.b64encode(script).decode()]})
    assert "is not an image that can be read" in refused.json()["detail"]


def test_no_more_images_are_decoded_at_once_than_there_are_cores(monkeypatch):
    monkeypatch.setattr(room, "cores", lambda: 1)
    now, most, decode = [0], [0], room.decode

    def counted(*given):
        now[0] += 1
        most[0] = max(most[0], now[0])
        time.sleep(0.005)
        now[0] -= 1
        return decode(*given)

    monkeypatch.setattr(room, "decode", counted)
    client = TestClient(service(image_model()))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: client.post("/predict", json={"images": [png(4, 5)] * 5}), range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert most == [1]
