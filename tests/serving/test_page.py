"""The page in a real browser: a prompt goes in, and the tokens arrive in it."""

import json
import re
import shutil
import subprocess
import urllib.request

import pytest
from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

ASK = """new Promise(done => {
  const at = id => document.getElementById(id), seen = [];
  new MutationObserver(() => {
    seen.push(at("said").textContent);
    if (/done|error/.test(seen.at(-1)) || at("said").className) done(JSON.stringify([seen, at("text").textContent]));
  }).observe(at("said"), {childList: true, attributes: true});
  at("prompt").value = "def <b>read";
  at("max_new_tokens").value = 30;
  document.querySelector("button").click();
})"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_page_shows_tokens_as_they_arrive(server, tmp_path):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    command += [f"--user-data-dir={tmp_path}", server.url]
    browser = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = next(found[1] for line in browser.stderr if (found := re.search(r"ws://127.0.0.1:(\d+)/", line)))
        page = None
        while page is None:  # until it has loaded, or the test's time is over
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=10) as response:
                page = next((one for one in json.loads(response.read()) if one["title"] == "Tokenmill"), None)
        with connect(page["webSocketDebuggerUrl"]) as socket:
            parameters = {"expression": ASK, "awaitPromise": True}
            socket.send(json.dumps({"id": 1, "method": "Runtime.evaluate", "params": parameters}))
            answer = json.loads(socket.recv(timeout=30))
        seen, text = json.loads(answer["result"]["result"]["value"])
    finally:
        browser.kill()
        browser.wait()
        browser.stderr.close()
    assert re.fullmatch(r"\d+ tokens, done: (eos|length|context)", seen[-1])
    assert "1 tokens" in seen
    assert text.startswith("def <b>read") and len(text) > len("def <b>read")
