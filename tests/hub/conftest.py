"""A stand-in for the Hugging Face Hub on 127.0.0.1: the endpoints that listing and downloading use, and failures."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from minfer_models.settings import Settings

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Request:
    method: str
    path: str
    range: str | None
    host: str
    authorization: str | None


@dataclass
class StandIn:
    """What the stand-in serves, how it misbehaves, and what it was asked."""

    port: int = 0
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    bad_tokens: set[str] = field(default_factory=set)
    refused: dict[str, int] = field(default_factory=dict)  # repo -> status, without an error code
    storage_host: str | None = None  # where downloads redirect to
    cut_after: list[int] = field(default_factory=list)  # bytes that the next download sends before its connection drops
    broken: bool = False  # downloads answer 500
    corrupt: bool = False  # downloads have the right length and other bytes
    requests: list[Request] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def downloads(self) -> list[Request]:
        return [request for request in self.requests if request.method == "GET" and "/api/" not in request.path]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: StandIn

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = urlsplit(self.path)
        headers = self.headers
        self.hub.requests.append(
            Request(self.command, unquote(url.path), headers["Range"], headers["Host"], headers["Authorization"])
        )
        parts = unquote(url.path).strip("/").split("/")
        if parts == ["api", "models"]:
            author = parse_qs(url.query).get("author", [""])[0]
            self._json(200, [{"id": repo} for repo in self.hub.repos if repo.startswith(author + "/")])
        elif parts[:2] == ["api", "models"]:
            self._model_info("/".join(parts[2:4]))
        elif parts[2:3] == ["resolve"]:
            self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self._json(404, {"error": "unknown"})

    def _json(self, status: int, body: object, **extra: str) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in extra.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _model_info(self, repo: str) -> None:
        if (self.headers["Authorization"] or "").removeprefix("Bearer ") in self.hub.bad_tokens:
            self._json(401, {"error": "no"}, X_Error_Message="Invalid credentials in Authorization header")
        elif repo in self.hub.refused:
            self._json(self.hub.refused[repo], {"error": "no"})
        elif repo not in self.hub.repos and self.headers["Authorization"]:
            self._json(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        elif repo not in self.hub.repos:
            # to the anonymous, the Hub doesn't tell a missing repository from a private one
            self._json(401, {"error": "Invalid username or password."}, X_Error_Message="Invalid username or password.")
        else:
            siblings = [
                {
                    "rfilename": name,
                    "size": len(data),
                    "blobId": hashlib.sha1(data).hexdigest(),
                    "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 135},
                }
                for name, data in self.hub.repos[repo].items()
            ]
            self._json(200, {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings})

    def _file(self, repo: str, revision: str, name: str) -> None:
        if repo in self.hub.gated:
            self._json(403, {"error": "gated"}, X_Error_Code="GatedRepo", X_Error_Message="Access is restricted.")
            return
        assert revision == COMMIT, "a download is pinned to the listed commit"
        data = self.hub.repos[repo][name]
        moved = self.hub.storage_host is not None and not self.headers["Host"].startswith(self.hub.storage_host)
        if self.command == "HEAD" or moved:
            self._metadata(data, moved)
        else:
            self._download(data)

    def _metadata(self, data: bytes, moved: bool) -> None:
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", f"http://{self.hub.storage_host}:{self.hub.port}{self.path}")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-Linked-Etag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Linked-Size", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("Content-Length", "0" if moved else str(len(data)))
        self.end_headers()

    def _download(self, data: bytes) -> None:
        if self.hub.broken:
            self._json(500, {"error": "down"})
            return
        if self.hub.corrupt:
            data = bytes(byte ^ 1 for byte in data)
        start = 0
        wanted = self.headers["Range"]
        if wanted:
            start = int(wanted.removeprefix("bytes=").split("-")[0])
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.hub.cut_after:
            self.wfile.write(data[start : start + self.hub.cut_after.pop(0)])
            self.close_connection = True
        else:
            self.wfile.write(data[start:])


@pytest.fixture
def hub() -> Iterator[StandIn]:
    stand_in = StandIn()
    handler = type("Handler", (_Handler,), {"hub": stand_in})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    stand_in.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield stand_in
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def settings(hub: StandIn, tmp_path: Path) -> Settings:
    """Settings that know no Hub but the stand-in."""
    return Settings(cache_dir=tmp_path / "cache", hf_endpoint=hub.endpoint)
