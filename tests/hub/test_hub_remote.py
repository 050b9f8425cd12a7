from __future__ import annotations

import dataclasses
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from minfer_models.hub import LocateError, locate
from minfer_models.settings import Settings

REPO = "acme/tiny-GGUF"
rng = random.Random(7)
Q4 = rng.randbytes(300_000)
Q8 = rng.randbytes(5_000)
SHARDS = {f"Q6_K/tiny-Q6_K-{index:05d}-of-00003.gguf": rng.randbytes(1_000 + index) for index in (1, 2, 3)}


@pytest.fixture(autouse=True)
def repository(hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # huggingface_hub writes what it reads in pieces of 10 MB: small ones let small files break in the middle
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)
    hub.repos[REPO] = {
        "README.md": b"# tiny",
        "mmproj-F16.gguf": b"a projector",
        "tiny-Q4_K_M.gguf": Q4,
        "tiny-Q8_0.gguf": Q8,
        **SHARDS,
    }


def partials(settings: Settings) -> list[Path]:
    return list(settings.cache_dir.rglob("*.partial"))


@pytest.mark.parametrize("tag", ["Q4_K_M", "q4_k_m", "tiny-Q4_K_M.gguf"])
def test_fetches_the_file_of_the_tag_once(hub: Any, settings: Settings, tag: str) -> None:
    path = locate(f"{REPO}:{tag}", settings)
    assert path.read_bytes() == Q4
    assert path.suffix == ".gguf"
    assert locate(f"{REPO}:{tag}", settings) == path
    assert len(hub.downloads()) == 1


def test_fetches_every_shard_and_gives_the_first(hub: Any, settings: Settings) -> None:
    first = locate(f"{REPO}:q6_k", settings)
    assert first.name == "tiny-Q6_K-00001-of-00003.gguf"
    assert {f"Q6_K/{path.name}": path.read_bytes() for path in first.parent.glob("*.gguf")} == SHARDS


def test_a_missing_shard_is_named_before_anything_is_fetched(hub: Any, settings: Settings) -> None:
    del hub.repos[REPO]["Q6_K/tiny-Q6_K-00002-of-00003.gguf"]
    with pytest.raises(LocateError, match=r"missing: Q6_K/tiny-Q6_K-00002-of-00003\.gguf"):
        locate(f"{REPO}:Q6_K", settings)
    assert hub.downloads() == []


def test_a_dropped_connection_is_taken_up_where_it_broke(hub: Any, settings: Settings) -> None:
    hub.cut_after = [123_456]
    assert locate(f"{REPO}:Q4_K_M", settings).read_bytes() == Q4
    assert [request.range for request in hub.downloads()] == [None, "bytes=120000-"]


def test_the_next_run_goes_on_where_the_last_one_stopped(hub: Any, settings: Settings) -> None:
    class BreaksAfterFirst(list[int]):
        def pop(self, index: Any = -1) -> int:
            hub.broken = True
            return super().pop(index)

    hub.cut_after = BreaksAfterFirst([200_000])
    with pytest.raises(LocateError, match=r"broke off.*run the same command again"):
        locate(f"{REPO}:Q4_K_M", settings)
    assert [path.stat().st_size for path in partials(settings)] == [200_000]
    assert list(settings.cache_dir.rglob("*.gguf")) == []

    hub.broken = False
    assert locate(f"{REPO}:Q4_K_M", settings).read_bytes() == Q4
    assert hub.downloads()[-1].range == "bytes=200000-"
    assert partials(settings) == []


def test_damaged_bytes_never_get_the_files_name(hub: Any, settings: Settings) -> None:
    hub.corrupt = True
    with pytest.raises(LocateError, match=r"tiny-Q8_0\.gguf: sha256 is [0-9a-f]{64}, expected [0-9a-f]{64}"):
        locate(f"{REPO}:Q8_0", settings)
    assert list(settings.cache_dir.rglob("*.gguf")) == []
    assert partials(settings) == []
    hub.corrupt = False
    assert locate(f"{REPO}:Q8_0", settings).read_bytes() == Q8


@pytest.mark.parametrize("newer", [b"newer and of another length", Q8[::-1]], ids=["length", "bytes"])
def test_a_file_that_changed_on_the_hub_is_fetched_again(hub: Any, settings: Settings, newer: bytes) -> None:
    locate(f"{REPO}:Q8_0", settings)
    hub.repos[REPO]["tiny-Q8_0.gguf"] = newer
    assert locate(f"{REPO}:Q8_0", settings).read_bytes() == newer


def test_a_truncated_cached_file_is_fetched_again(hub: Any, settings: Settings) -> None:
    path = locate(f"{REPO}:Q8_0", settings)
    path.write_bytes(Q8[:100])
    assert locate(f"{REPO}:Q8_0", settings).read_bytes() == Q8


def test_two_at_once_download_once(hub: Any, settings: Settings) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: locate(f"{REPO}:Q4_K_M", settings), range(4)))
    assert len(set(paths)) == 1
    assert paths[0].read_bytes() == Q4
    assert len(hub.downloads()) == 1


def test_the_token_goes_to_the_hub_and_not_to_its_storage(hub: Any, settings: Settings) -> None:
    hub.storage_host = "localhost"
    with_token = dataclasses.replace(settings, hf_token="hf_secret")
    assert locate(f"{REPO}:Q8_0", with_token).read_bytes() == Q8
    by_host: dict[bool, set[str | None]] = {}
    for request in hub.requests:
        by_host.setdefault(request.host.startswith("localhost"), set()).add(request.authorization)
    assert by_host == {False: {"Bearer hf_secret"}, True: {None}}


def test_a_wrong_tag_lists_what_there_is(settings: Settings) -> None:
    expected = rf"{REPO} holds no Q4_K_X; did you mean {REPO}:Q4_K_M\? available: Q4_K_M, Q6_K, Q8_0"
    with pytest.raises(LocateError, match=expected):
        locate(f"{REPO}:Q4_K_X", settings)


def test_no_tag_takes_the_only_model_and_never_one_of_several(hub: Any, settings: Settings) -> None:
    with pytest.raises(LocateError, match=r"holds 3 models; say which.*Q4_K_M, Q6_K, Q8_0"):
        locate(REPO, settings)
    hub.repos["acme/one"] = {"one-F16.gguf": b"one"}
    assert locate("acme/one", settings).read_bytes() == b"one"


def test_a_tag_that_two_models_share_lists_their_files(hub: Any, settings: Settings) -> None:
    hub.repos[REPO]["other-Q8_0.gguf"] = b"other"
    with pytest.raises(LocateError, match=r"2 models tagged Q8_0; give a file name: other-Q8_0.gguf, tiny-Q8_0.gguf"):
        locate(f"{REPO}:Q8_0", settings)
    assert locate(f"{REPO}:other-Q8_0.gguf", settings).read_bytes() == b"other"


@pytest.mark.parametrize("token", [None, "hf_secret"])  # the Hub answers 401 and 404
def test_a_missing_repository_suggests_the_owners_nearest(settings: Settings, token: str | None) -> None:
    with pytest.raises(LocateError) as caught:
        locate("acme/tinny-GGUF:Q8_0", dataclasses.replace(settings, hf_token=token))
    assert "acme/tinny-GGUF: no such repository" in str(caught.value)
    assert f"did you mean {REPO}?" in str(caught.value)
    assert str(settings.hf_endpoint) in str(caught.value)


def test_a_gated_repository_says_how_to_get_in(hub: Any, settings: Settings) -> None:
    hub.gated = {REPO}
    with pytest.raises(LocateError, match=rf"{REPO} is gated: accept its terms at {hub.endpoint}/{REPO}.*HF_TOKEN"):
        locate(f"{REPO}:Q8_0", settings)


def test_a_refused_token_is_named(hub: Any, settings: Settings) -> None:
    hub.bad_tokens = {"hf_old"}
    with pytest.raises(LocateError, match=rf"{REPO}: {hub.endpoint} refuses the token.*HF_TOKEN"):
        locate(f"{REPO}:Q8_0", dataclasses.replace(settings, hf_token="hf_old"))


@pytest.mark.parametrize(("status", "words"), [(403, "refuses access.*HF_TOKEN"), (418, "answers 418")])
def test_other_refusals_name_the_repository_and_status(hub: Any, settings: Settings, status: int, words: str) -> None:
    hub.refused = {REPO: status}
    with pytest.raises(LocateError, match=rf"{REPO}: {hub.endpoint} .*{words}"):
        locate(f"{REPO}:Q8_0", settings)


def test_offline_uses_what_was_fetched_and_says_so(
    hub: Any, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    path = locate(f"{REPO}:Q8_0", settings)
    shard = locate(f"{REPO}:Q6_K", settings)
    capfd.readouterr()
    offline = dataclasses.replace(settings, hf_endpoint="http://127.0.0.1:9")
    assert locate(f"{REPO}:Q8_0", offline) == path
    assert "http://127.0.0.1:9 cannot be reached; using" in capfd.readouterr().err
    assert locate(f"{REPO}:Q6_K", offline) == shard
    with pytest.raises(LocateError, match=r"of what was fetched before.*holds no Q4_K_M; .*available: Q6_K, Q8_0"):
        locate(f"{REPO}:Q4_K_M", offline)
    with pytest.raises(LocateError, match="nothing of acme/other is in"):
        locate("acme/other:Q4_K_M", offline)


def test_progress_goes_to_stderr(
    settings: Settings, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TQDM_POSITION", "-1")  # draw the bar without a terminal too
    locate(f"{REPO}:Q4_K_M", settings)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert f"fetching {REPO}/tiny-Q4_K_M.gguf" in captured.err
    assert "300k/300k" in captured.err
