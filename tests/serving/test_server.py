"""The server as its clients see it: both protocols, bad requests, streams, a swap, and its end."""

import concurrent.futures
import http.client
import json
import shutil
import urllib.request

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from components.registry_pusher import registry
from tests.serving.conftest import SAMPLING, Server

PREDICT = "/v1/models/demo:predict"


def grpc_request(signature="serving_default", **inputs):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "demo"
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def settings_of_rows(rows, **changes):
    values = {**SAMPLING, **changes}
    return {
        name: tf.constant([value] * rows, tf.float32 if isinstance(value, float) else tf.int32)
        for name, value in values.items()
    }


def test_rows_alone_together_and_over_grpc_are_answered_alike(server):
    prompts = ["", "def read", "käse 한국", "a longer prompt than the others, by far"]
    alone = [server.predict(prompt)[1]["predictions"][0] for prompt in prompts]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        at_once = [answer[1]["predictions"][0] for answer in pool.map(server.predict, prompts)]
    status, together = server.predict(*prompts)
    assert status == 200
    assert together["predictions"] == alone == at_once
    with grpc.insecure_channel(server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        answer = stub.Predict(grpc_request(prompt=[p.encode() for p in prompts], **settings_of_rows(4)))
    texts = [text.decode() for text in tf.make_ndarray(answer.outputs["text"])]
    assert texts == [row["text"] for row in alone]
    assert len(set(texts)) == 4
    assert answer.model_spec.version.value == 1


def test_columns_and_single_inputs(server):
    _, answer = server.call(PREDICT, {"signature_name": "tokenize", "inputs": ["ab"]})
    ids = answer["outputs"]["token_ids"]
    body = {"signature_name": "detokenize", "inputs": {"token_ids": ids}}
    assert server.call(PREDICT, body) == (200, {"outputs": ["ab"]})
    assert server.call(PREDICT, {"signature_name": "detokenize", "instances": ids}) == (200, {"predictions": ["ab"]})


def test_status_metadata_health_and_metrics(server):
    _, status = server.call("/v1/models/demo")
    assert status["model_version_status"][0] == {
        "version": "1",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    assert server.call("/health") == (200, {"model": "demo", "version": 1})
    assert server.call("/v1/models/demo/versions/1")[0] == 200
    assert server.call("/v1/models/demo/versions/7")[0] == 404
    _, metadata = server.call("/v1/models/demo/metadata")
    assert "prompt" in metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]
    server.predict("x")
    with urllib.request.urlopen(server.url + "/metrics", timeout=10) as response:
        text = response.read().decode()
    assert 'tokenmill_requests_total{code="200",protocol="rest",signature="serving_default"}' in text
    assert "tokenmill_model_version 1.0" in text
    with grpc.insecure_channel(server.grpc) as channel:
        asked = get_model_status_pb2.GetModelStatusRequest()
        asked.model_spec.name = "demo"
        state = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(asked).model_version_status[0].state
        assert state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
        wanted = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        wanted.model_spec.name = "demo"
        answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).GetModelMetadata(wanted)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(signatures)
    assert signatures.signature_def["score"].inputs["text"].dtype == tf.string.as_datatype_enum


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"prompt": {"b64": "/w=="}}, 400, "UTF-8"),
        ({"prompt": {"b64": "%"}}, 400, "base64"),
        ({"prompt": "\ud800"}, 400, "surrogate"),
        ({"prompt": 3}, 400, "must be a string"),
        ({"prompt": "x" * 10_000_000}, 413, "10000000 bytes"),
        ({"max_new_tokens": 0}, 400, "max_new_tokens must be at least 1"),
        ({"max_new_tokens": -1}, 400, "max_new_tokens must be at least 1"),
        ({"max_new_tokens": 2**31}, 400, "beyond what int32 holds"),
        ({"max_new_tokens": 10**30}, 400, "max_new_tokens"),
        ({"max_new_tokens": 1.5}, 400, "must be int32"),
        ({"temperature": float("nan")}, 400, "temperature must be finite"),
        ({"temperature": -1.0}, 400, "temperature must be finite"),
        ({"temperature": "hot"}, 400, "must be float32"),
        ({"top_p": 2.0}, 400, "top_p"),
        ({"surprise": 1}, 400, "surprise"),
    ],
)
def test_bad_values(server, changes, status, said):
    got, answer = server.predict("", **changes)
    assert got == status and said in answer["error"]
    assert server.predict("x")[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "not JSON"),
        (b"", 400, "not JSON"),
        (b"\xff", 400, "UTF-8"),
        (b"[" * 100_000, 400, "nested too deeply"),
        (b"[]", 400, "must be a JSON object"),
        ({}, 400, "instances"),
        ({"instances": []}, 400, "one or more"),
        ({"instances": ["bare"]}, 400, "must name its inputs"),
        ({"instances": [{"prompt": "x"}]}, 400, "missing"),
        ({"signature_name": "nothing", "instances": ["x"]}, 404, "no signature 'nothing'"),
        ({"signature_name": "detokenize", "instances": [[999]]}, 400, "token_ids must lie between"),
    ],
)
def test_bad_bodies(server, body, status, said):
    got, answer = server.call(PREDICT, body)
    assert got == status and said in answer["error"]


def test_a_huge_number_of_tokens_ends_with_the_context(server):
    status, answer = server.predict("x", max_new_tokens=2**31 - 1)
    assert status == 200 and answer["predictions"][0]["finish_reason"] in ("context", "eos")


def test_bad_calls_over_grpc(server):
    with grpc.insecure_channel(server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

        def code(request):
            with pytest.raises(grpc.RpcError) as raised:
                stub.Predict(request)
            return raised.value.code()

        spread = grpc_request("score", text=[b"x"])
        spread.inputs["text"].tensor_shape.dim[0].size = 10**12
        assert code(spread) == grpc.StatusCode.INVALID_ARGUMENT
        assert code(grpc_request("nothing", text=[b"x"])) == grpc.StatusCode.NOT_FOUND
        assert code(grpc_request("score", text=[b"x" * 200_000])) == grpc.StatusCode.INVALID_ARGUMENT
        bad = grpc_request(prompt=[b"x"], **settings_of_rows(1, max_new_tokens=0))
        assert code(bad) == grpc.StatusCode.INVALID_ARGUMENT
        assert stub.Predict(grpc_request("score", text=[b"x"])).outputs["num_bytes"].int64_val == [1]


def test_a_stream_gives_the_text_of_a_prediction_in_pieces(server):
    body = {"prompt": "def read", **SAMPLING, "max_new_tokens": 20}
    request = urllib.request.Request(server.url + "/v1/models/demo:stream", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        events = [json.loads(line[6:]) for line in response.read().decode().splitlines() if line.startswith("data: ")]
    expected = server.predict("def read", max_new_tokens=20)[1]["predictions"][0]
    assert "".join(event["text"] for event in events) == expected["text"]
    assert events[-1]["finish_reason"] == expected["finish_reason"]
    assert len(events) > 3
    assert server.call("/v1/models/demo:stream", {"prompt": "x", "max_new_tokens": 0})[0] == 400


def test_a_client_that_hangs_up_in_mid_stream_leaves_nothing_behind(server):
    for _ in range(3):
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
        connection.request("POST", "/v1/models/demo:stream", json.dumps({"prompt": "x", "max_new_tokens": 60}))
        connection.getresponse().read(10)
        connection.close()
    assert server.predict("x")[0] == 200
    while True:  # ends when the streams have, or by the test's time limit
        with urllib.request.urlopen(server.url + "/metrics", timeout=10) as response:
            if "tokenmill_streams 0.0" in response.read().decode():
                return


def test_a_swap_amid_requests_loses_none_and_mixes_none_up(tmp_path, export_folders):
    registry.push(tmp_path, "demo", export_folders[0], {})
    prompts = [f"prompt {number} " * (number % 5) for number in range(40)]
    server = Server(tmp_path)
    try:
        old = [row["text"] for row in server.predict(*prompts[:32])[1]["predictions"]]
        half = tmp_path / "demo" / "2"
        half.mkdir()
        (half / "saved_model.pb").write_bytes(b"half")
        registry.push(tmp_path, "demo", export_folders[1], {})
        seen = {}

        def ask(number):
            status, answer = server.predict(prompts[number % 32], **({"top_p": 7.0} if number % 10 == 9 else {}))
            return number, status, answer

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            while server.call("/health")[1]["version"] != 3:
                for number, status, answer in pool.map(ask, range(100)):
                    assert status == (400 if number % 10 == 9 else 200), answer
                    if status == 200:
                        seen.setdefault(number % 32, set()).add(answer["predictions"][0]["text"])
            new = [row["text"] for row in server.predict(*prompts[:32])[1]["predictions"]]
            for number, status, answer in pool.map(ask, range(100)):
                assert status == (400 if number % 10 == 9 else 200), answer
                if status == 200:
                    assert answer["predictions"][0]["text"] == new[number % 32]
        assert new != old
        assert all(texts <= {old[number], new[number]} for number, texts in seen.items())
        states = {entry["version"]: entry for entry in server.call("/v1/models/demo")[1]["model_version_status"]}
        assert states["3"]["state"] == "AVAILABLE"
        assert states["1"]["state"] == "END"
        shutil.rmtree(half)
    finally:
        assert server.stop() == 0


def test_sigterm_ends_what_is_under_way_first(registry_dir):
    server = Server(registry_dir)
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    connection.request("POST", "/v1/models/demo:stream", json.dumps({"prompt": "x", "max_new_tokens": 60}))
    response = connection.getresponse()  # it has begun
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ended = pool.submit(server.stop)
        events = response.read().decode().split("\n\n")
        assert ended.result() == 0
    assert json.loads(events[-2][6:])["finish_reason"]
    connection.close()
