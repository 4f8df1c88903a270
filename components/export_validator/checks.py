"""Proves an exported model in a process of its own. Run by path, with `python -I -S`; imports nothing of Tokenmill.

    checks.py CASES REPORT SITE_PACKAGES...

CASES is a JSON file (`components.export_validator.cases`), REPORT the JSON file to write. What is asked of the model
goes through its signatures, as a client's requests would; what is expected was written by others, or follows from
another signature. A check that fails says what it found and gives its first example; those after it go on.
"""

import ctypes
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SIGNATURES = ("serving_default", "prefill", "decode", "score", "logits", "tokenize", "detokenize")
_PR_SET_PDEATHSIG = 1


class CheckError(Exception):
    """A check has failed: what was found, and the first example of it."""

    def __init__(self, found: str, example: dict[str, Any] | None = None):
        super().__init__(found)
        self.found, self.example = found, example


class Blocker:
    """Hides packages: what has a model that needs them does not work elsewhere."""

    def __init__(self, names: list[str]):
        self._names = frozenset(names)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self._names:
            raise ImportError(f"{name} is the trainer's code, which a served model must not need")


def main(cases_path: str, report_path: str, *site_packages: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody waits for the answer of an orphan
    cases = json.loads(Path(cases_path).read_text(encoding="utf-8"))
    sys.path += site_packages
    sys.meta_path.insert(0, Blocker(cases["hidden_packages"]))
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the accelerator may be the trainer's still
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow_text  # noqa: F401 - registers the tokenizer's op

    checks = Checks(cases)
    results = []
    for name in ("files", "load", "tokens", "round_trip", "trainer", "score", "cached", "batched", "streamed", "times"):
        started = time.monotonic()
        result: dict[str, Any] = {"name": name, "passed": True, "found": "", "example": None}
        try:
            if name not in ("files", "load") and checks.signatures is None:
                raise CheckError("not looked at: the model does not load")
            result["found"] = getattr(checks, name)()
        except CheckError as error:
            result |= {"passed": False, "found": error.found, "example": error.example}
        except Exception as error:  # noqa: BLE001 - whatever a broken model raises is what the check found
            result |= {"passed": False, "found": f"{type(error).__name__}: {str(error)[:2000]}"}
        result["seconds"] = round(time.monotonic() - started, 2)
        results.append(result)
    report = {
        "passed": all(result["passed"] for result in results),
        "checks": results,
        "memory_mib": checks.memory_mib,
        "seconds": {"load": checks.load_s, **checks.answers_s},
    }
    Path(report_path).write_text(json.dumps(report, indent=2), encoding="utf-8")


class Checks:
    """Each method is a check: it returns what it found good, or raises CheckError."""

    def __init__(self, cases: dict[str, Any]):
        self.cases = cases
        self.folder = Path(cases["model"])
        self.tolerance = cases["tolerance"]
        self.signatures: Any = None
        self.memory_mib: float | None = None
        self.load_s: float | None = None
        self.answers_s: dict[str, float] = {}

    def files(self) -> str:
        """The files are those that the trainer wrote."""
        expected = json.loads((self.folder / "assets.extra" / "checksums.json").read_text(encoding="utf-8"))
        for name, checksum in expected.items():
            path = self.folder / name
            found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
            if found != checksum:
                raise CheckError(f"{name} is not what was exported", {"expected": checksum, "found": found})
        description = json.loads((self.folder / "assets.extra" / "tokenmill.json").read_text(encoding="utf-8"))
        self.context = description["model"]["seq_len"]
        tokenizer = expected["assets.extra/tokenizer.model"]
        if tokenizer != self.cases["tokenizer_sha256"]:
            raise CheckError(
                "the tokenizer is not the one that made the trainer's rows",
                {"expected": self.cases["tokenizer_sha256"], "found": tokenizer},
            )
        return f"{len(expected)} files as exported"

    def load(self) -> str:
        """The model loads here, has every signature, and fits the memory."""
        import tensorflow as tf

        before, started = _resident_mib(), time.monotonic()
        self._model = tf.saved_model.load(str(self.folder))
        signatures = self._model.signatures
        self.load_s, self.memory_mib = round(time.monotonic() - started, 2), round(_resident_mib() - before, 1)
        missing = [name for name in SIGNATURES if name not in signatures]
        if missing:
            raise CheckError(f"signatures are missing: {', '.join(missing)}")
        self.signatures = signatures
        limit = self.cases["max_load_mib"]
        if limit is not None and self.memory_mib > limit:
            raise CheckError(f"takes {self.memory_mib} MiB, more than {limit}")
        return f"{len(SIGNATURES)} signatures, {self.memory_mib} MiB, {self.load_s} s"

    def tokens(self) -> str:
        """Texts get the ids that the trainer was given, in the rows."""
        compared = 0
        for document in self.cases["documents"]:
            (found,) = self._tokenize([document["text"]])
            if len(found) != document["num_tokens"]:
                raise CheckError(
                    "another number of tokens than in the trainer's rows",
                    _example(document, expected=document["num_tokens"], found=len(found)),
                )
            for stretch in document["stretches"]:
                start, expected = stretch["start"], stretch["token_ids"]
                for place, (one, other) in enumerate(zip(expected, found[start:], strict=False), start):
                    if one != other:
                        raise CheckError(
                            f"token {place} differs from the trainer's rows",
                            _example(document, expected=one, found=other),
                        )
                compared += len(expected)
        return f"{compared:,} ids of {len(self.cases['documents'])} documents equal the trainer's rows"

    def round_trip(self) -> str:
        """Tokenized and detokenized, a text is the same bytes."""
        documents = self.cases["documents"]
        for document in documents:
            ids = self._call("tokenize", text=[document["text"]])["token_ids"]
            back = self._call("detokenize", token_ids=ids)["text"][0]
            if back != document["text"].encode():
                at = _first_difference(back, document["text"].encode())
                around = slice(max(0, at - 20), at + 20)
                raise CheckError(
                    f"byte {at} does not come back",
                    _example(document, expected=repr(document["text"].encode()[around]), found=repr(back[around])),
                )
        return f"{sum(len(document['text'].encode()) for document in documents):,} bytes come back as they were"

    def trainer(self) -> str:
        """The plain forward pass says of the trainer's rows what the trainer's says, token by token."""
        import numpy as np

        reference = np.load(self.cases["reference"], allow_pickle=False)
        largest, compared = 0.0, 0
        for row, (ids, segments, expected) in enumerate(
            zip(reference["token_ids"], reference["segment_ids"], reference["nll"], strict=True)
        ):
            for segment in range(1, int(segments.max()) + 1):
                places = np.flatnonzero(segments == segment)
                found = self._nll(ids[places])
                for place, nll in zip(places, found, strict=False):
                    difference = abs(float(nll) - float(expected[place]))
                    if not difference <= self.tolerance:
                        raise CheckError(
                            f"-log p differs from the trainer's by {difference:.3g}, more than {self.tolerance:g}",
                            {"row": row, "place": int(place), "expected": float(expected[place]), "found": float(nll)},
                        )
                    largest = max(largest, difference)
                compared += len(found)
        if not compared:
            raise CheckError("the trainer's reference has no token to compare")
        return f"-log p of {compared:,} tokens within {largest:.1e} nats of the trainer's (limit {self.tolerance:g})"

    def score(self) -> str:
        """`score` is the sum over windows, which another signature computes."""
        largest, texts = 0.0, self._texts()
        for text in texts:
            (ids,) = self._tokenize([text])
            answer = {name: value[0] for name, value in self._call("score", text=[text]).items()}
            expected = sum(self._windows(ids))
            counts = {"num_tokens": len(ids) - 1, "num_bytes": len(text.encode())}
            for name, count in counts.items():
                if answer[name] != count:
                    raise CheckError(
                        f"{name} is wrong", {"text": text[:200], "expected": count, "found": int(answer[name])}
                    )
            difference = abs(float(answer["nll"]) - expected) / (len(ids) - 1)
            if not difference <= self.tolerance:
                raise CheckError(
                    f"nll per token differs by {difference:.3g}, more than {self.tolerance:g}",
                    {"text": text[:200], "expected": expected, "found": float(answer["nll"])},
                )
            largest = max(largest, difference)
        return (
            f"{len(texts)} texts within {largest:.1e} nats a token of the sum over windows (limit {self.tolerance:g})"
        )

    def cached(self) -> str:
        """After every generated token, logits by the cache are those of the plain forward pass."""
        import numpy as np

        prompts = self._prompts()
        state = self._call("prefill", **self._request(prompts, temperature=1.0))
        prompt_ids = [
            ids[:-1][dropped:]
            for ids, dropped in zip(self._tokenize(prompts), state["prompt_tokens_dropped"], strict=True)
        ]
        by_cache: list[list[Any]] = [[] for _ in prompts]  # logits after each token, until the row ends
        while True:
            for row, reason in enumerate(state["finish_reason"]):
                if len(by_cache[row]) == state["num_tokens"][row] and reason != b"eos":
                    by_cache[row].append(state["logits"][row])
            if all(state["finish_reason"]):
                break
            state = self._decode(state, 1)
        largest, compared = 0.0, 0
        for row, prompt in enumerate(prompts):
            ids = prompt_ids[row] + state["token_ids"][row][: state["num_tokens"][row]].tolist()
            plain = self._call("logits", token_ids=[ids])["logits"][0][len(prompt_ids[row]) - 1 :]
            for tokens_made, (expected, found) in enumerate(zip(plain, by_cache[row], strict=False)):
                difference = float(np.abs(expected - found).max())
                if not difference <= self.tolerance:
                    raise CheckError(
                        f"logits differ by {difference:.3g}, more than {self.tolerance:g}",
                        {"prompt": prompt[-200:], "tokens_made": tokens_made},
                    )
                largest, compared = max(largest, difference), compared + 1
        return f"logits at {compared} positions within {largest:.1e} (limit {self.tolerance:g})"

    def batched(self) -> str:
        """A row answers the same alone and beside others."""
        prompts = self._prompts()
        ways: list[dict[str, Any]] = [
            {"temperature": 0.0},
            {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "repetition_penalty": 1.1},
        ]
        for how in ways:
            together = self._call("serving_default", **self._request(prompts, **how))
            for row, prompt in enumerate(prompts):
                alone = self._call("serving_default", **self._request([prompt], first_seed=row, **how))
                for name, value in alone.items():
                    if value[0] != together[name][row]:
                        raise CheckError(
                            f"serving_default: {name} differs",
                            {
                                "prompt": prompt[-200:],
                                "alone": str(value[0]),
                                "together": str(together[name][row]),
                                **how,
                            },
                        )
        texts = ["", *self._texts()]
        together = self._call("score", text=texts)
        for row, text in enumerate(texts):
            alone = self._call("score", text=[text])
            difference = abs(float(alone["nll"][0] - together["nll"][row])) / float(alone["num_tokens"][0])
            if not difference <= self.tolerance or alone["num_tokens"][0] != together["num_tokens"][row]:
                raise CheckError("score: nll differs", {"text": text[:200], "difference_per_token": difference})
        if self._tokenize(texts) != [self._tokenize([text])[0] for text in texts]:
            raise CheckError("tokenize: ids differ")
        return f"{len(prompts)} prompts in {len(ways)} ways and {len(texts)} texts answer alone as together"

    def streamed(self) -> str:
        """Tokens that come in parts are those of the whole answer."""
        prompts = self._prompts()
        inputs = self._request(prompts, temperature=0.9)
        whole = self._call("serving_default", **inputs)
        state, parts, shown = self._call("prefill", **inputs), 0, [b""] * len(prompts)
        while not all(state["finish_reason"]):
            state, parts = self._decode(state, 3), parts + 1
            for before, text, prompt in zip(shown, state["text"], prompts, strict=True):
                if not text.startswith(before):
                    raise CheckError("a text does not go on from the one before", {"prompt": prompt[-200:]})
            shown = list(state["text"])
        for row, prompt in enumerate(prompts):
            if shown[row] != whole["text"][row]:
                raise CheckError(
                    "the last text is not the whole answer",
                    {"prompt": prompt[-200:], "expected": repr(whole["text"][row]), "found": repr(shown[row])},
                )
        return f"{len(prompts)} answers the same in {parts} parts as in one"

    def times(self) -> str:
        """Every signature answers a small request within the limit, once it is warm."""
        request = self._request(self._prompts()[:1])
        state = self._call("prefill", **request)
        requests = {
            "serving_default": lambda: self._call("serving_default", **request),
            "prefill": lambda: self._call("prefill", **request),
            "decode": lambda: self._decode(state, 1),
            "score": lambda: self._call("score", text=["a"]),
            "logits": lambda: self._call("logits", token_ids=[[2, 4]]),
            "tokenize": lambda: self._call("tokenize", text=["a"]),
            "detokenize": lambda: self._call("detokenize", token_ids=[[2, 4]]),
        }
        for name, ask in requests.items():
            ask()
            started = time.monotonic()
            ask()
            self.answers_s[name] = round(time.monotonic() - started, 4)
        limit = self.cases["max_answer_s"]
        slow = {name: seconds for name, seconds in self.answers_s.items() if seconds > limit}
        if slow:
            raise CheckError(f"slower than {limit} s: {', '.join(slow)}", slow)
        name, seconds = max(self.answers_s.items(), key=lambda item: item[1])
        return f"the slowest, {name}, takes {seconds:.3f} s (limit {limit:g})"

    def _call(self, name: str, **inputs: Any) -> Any:
        import tensorflow as tf

        signature = self.signatures[name]
        specs = signature.structured_input_signature[1]
        tensors = {key: tf.constant(value, specs[key].dtype) for key, value in inputs.items()}
        return {key: value.numpy() for key, value in signature(**tensors).items()}

    def _decode(self, state: dict[str, Any], num_steps: int) -> Any:
        names = self.signatures["decode"].structured_input_signature[1].keys() - {"num_steps"}
        return self._call("decode", num_steps=num_steps, **{name: state[name] for name in names})

    def _request(self, prompts: list[str], first_seed: int = 0, **settings: float) -> dict[str, Any]:
        values = {
            "max_new_tokens": 8,
            "temperature": 0.0,
            "top_k": 0,
            "top_p": 1.0,
            "repetition_penalty": 1.0,
            **settings,
        }
        rows = {name: [value] * len(prompts) for name, value in values.items()}
        return {"prompt": prompts, "seed": list(range(first_seed, first_seed + len(prompts))), **rows}

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        answer = self._call("tokenize", text=texts)
        return [ids[:count].tolist() for ids, count in zip(answer["token_ids"], answer["num_tokens"], strict=True)]

    def _nll(self, ids: Any) -> Any:
        """-log p of every id but the first, given those before it, as one text."""
        import numpy as np

        if len(ids) < 2:
            return np.zeros(0)
        logits = self._call("logits", token_ids=[ids[:-1]])["logits"][0].astype(np.float64)
        largest = logits.max(axis=-1)
        log_sum = np.log(np.exp(logits - largest[:, None]).sum(axis=-1)) + largest
        return log_sum - logits[np.arange(len(logits)), ids[1:]]

    def _windows(self, ids: list[int]) -> Iterator[float]:
        """-log p of every id but the first, as `score` defines it: a window begins three quarters of a context after
        the one before, and counts what that one did not reach."""
        step = max(1, self.context - self.context // 4)
        start = 0
        while True:
            found = self._nll(ids[start : start + self.context + 1])
            yield from found[0 if start == 0 else self.context - step :]
            if start + self.context >= len(ids) - 1:
                return
            start += step

    def _texts(self) -> list[str]:
        """Beginnings of documents, of one window and of several."""
        return [document["text"][: 2 * self.context * (1 + number)] for number, document in enumerate(self._few())]

    def _prompts(self) -> list[str]:
        """None, short ones, and one longer than the context."""
        few = self._few()
        length = 8 * self.context
        long = (few[-1]["text"] * (1 + length // max(1, len(few[-1]["text"]))))[:length]
        return ["", *(document["text"][: 20 + 30 * number] for number, document in enumerate(few)), long]

    def _few(self) -> list[dict[str, Any]]:
        return self.cases["documents"][:4]


def _example(document: dict[str, Any], **what: Any) -> dict[str, Any]:
    return {"doc_id": document["doc_id"], **what}


def _first_difference(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _resident_mib() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main(*sys.argv[1:])
