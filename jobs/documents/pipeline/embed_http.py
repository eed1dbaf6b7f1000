"""The embedder at the other end of HTTP: `POST .../embeddings` as OpenAI has it, and most servers of models too."""

from array import array
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from time import monotonic
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from pydantic import BaseModel, FiniteFloat, TypeAdapter, ValidationError
from urllib3.exceptions import HTTPError, LocationValueError, MaxRetryError

from jobs.documents.errors import EmbeddingError, EmbeddingRefused
from jobs.documents.pipeline.embedder import BATCH_SIZE, MAX_DIMENSIONS, RETRIES, TIMEOUT_SECONDS, Vector

CONNECT_SECONDS = 10
# Of the texts in one request. Some servers take 8,192 tokens at once and split no batch; a character is rarely more
# than a token.
MAX_BATCH_CHARS = 100_000
MAX_QUOTED_CHARS = 300  # of a server's own words in an error
# A vector of 4,000 numbers takes some 100 kB in JSON; what is far more than was asked for is no answer.
MAX_ANSWER_BYTES = 1_000_000
MAX_ANSWER_BYTES_PER_TEXT = 250_000
READ_BYTES = 1 << 16
FULL_PRECISION_DIMENSIONS = 2_000  # as in the migration 0005_vectors: longer vectors are stored in half the precision
MAX_NUMBER, MAX_HALF_NUMBER = 3.4e38, 65_504.0
MAX_ERROR_BYTES = 65_536  # that are looked at: cut shorter, the end might be half a key

# What may pass by itself.
TEMPORARY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# Within one attempt of the job: at once, then after some 2, 4 and 8 seconds, or when the server says, but at most a
# minute later: who must wait longer is better off as a later attempt.
RETRYING = urllib3.Retry(
    total=RETRIES,
    allowed_methods=None,  # also a POST, as this one changes nothing
    status_forcelist=TEMPORARY,
    backoff_factor=1,
    backoff_jitter=1,
    backoff_max=30,
    retry_after_max=60,
    raise_on_status=False,
)


class _Item(BaseModel):
    index: int
    embedding: list[FiniteFloat]


class _Answer(BaseModel):
    data: list[_Item]


_ANSWER = TypeAdapter(_Answer)


class HttpEmbedder:
    """One model at one endpoint. Blocks; of one thread at a time. Neither its errors nor its logs hold the key."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        dimensions: int | None = None,
        batch_size: int = BATCH_SIZE,
        timeout: float = TIMEOUT_SECONDS,
        retrying: urllib3.Retry = RETRYING,
    ) -> None:
        """`url` is what stands before /embeddings; `timeout` is seconds for each answer.

        Raises `EmbeddingRefused` for a URL or a key that is none.
        """
        parts = _parts(url)
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise EmbeddingRefused("EMBEDDING_API_KEY holds characters that no key has.")
        path = parts.path.rstrip("/").removesuffix("/embeddings")
        self.name = model
        self.batch_size = batch_size
        self._where = f"{parts.scheme}://{parts.netloc}{path}/embeddings"  # a query may hold what nobody should read
        self._url = f"{self._where}?{parts.query}" if parts.query else self._where
        self._key = api_key
        self._dimensions = dimensions
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        timeouts = urllib3.Timeout(connect=min(CONNECT_SECONDS, timeout), read=timeout)
        self._timeout = timeout
        self._retrying = retrying
        self._pool = _pool(parts, timeout=timeouts)
        self._seen = dimensions

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [vector for batch in batches(texts, self.batch_size) for vector in self._request(batch)]

    def _request(self, texts: Sequence[str]) -> list[Vector]:
        asked: dict[str, Any] = {"model": self.name, "input": texts}
        if self._dimensions is not None:
            asked["dimensions"] = self._dimensions
        try:
            status, content = self._answer(asked, len(texts))
        except MaxRetryError as error:
            raise EmbeddingError(f"{self._where} did not answer: {self._safe(error.reason or error)}") from None
        except HTTPError as error:
            raise EmbeddingError(f"{self._where} did not answer: {self._safe(error)}") from None
        if status != HTTPStatus.OK:
            raise self._refusal(status, content)
        return self._vectors(content, len(texts))

    def _answer(self, asked: dict[str, Any], count: int) -> tuple[int, bytes]:
        retrying = self._retrying
        while True:
            answer = self._pool.request(
                "POST",
                self._url,
                json=asked,
                headers=self._headers,
                redirect=False,
                preload_content=False,
                retries=retrying,
            )
            try:
                return answer.status, self._content(answer, count)
            except HTTPError as error:  # it broke off
                retrying = (answer.retries or retrying).increment("POST", self._where, error=error)
                retrying.sleep()

    def _content(self, answer: urllib3.BaseHTTPResponse, count: int) -> bytes:
        """All of an answer: a limit of the socket's holds for each piece of it only, and none for their number."""
        until = monotonic() + self._timeout
        most = MAX_ANSWER_BYTES + count * MAX_ANSWER_BYTES_PER_TEXT
        content = bytearray()
        try:
            while piece := answer.read1(READ_BYTES, decode_content=True):
                content += piece
                if len(content) > most:
                    raise EmbeddingError(f"{self._where} answered more than {most:,} bytes for {count} texts")
                if monotonic() > until:
                    raise EmbeddingError(f"{self._where} did not end its answer in {self._timeout:g} seconds")
        except BaseException:
            answer.close()  # not to be used again with what is left in it
            raise
        answer.release_conn()
        return bytes(content)

    def _vectors(self, content: bytes, count: int) -> list[Vector]:
        try:
            items = sorted(_ANSWER.validate_json(content).data, key=lambda item: item.index)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "it"
            raise EmbeddingError(f"{self._where} answered no embeddings: {where}: {first['msg']}") from None
        if [item.index for item in items] != list(range(count)):
            raise EmbeddingError(f"{self._where} answered {len(items)} vectors for {count} texts, or misnumbered them")
        for item in items:
            self._seen = self._seen or len(item.embedding)
            if len(item.embedding) != self._seen or not self._seen:
                raise EmbeddingError(
                    f"{self._where} answered a vector of {len(item.embedding)} dimensions where "
                    + ("EMBEDDING_DIMENSIONS asks for " if self._dimensions else "those before had ")
                    + f"{self._seen}"
                )
        if self._seen and self._seen > MAX_DIMENSIONS:
            raise EmbeddingRefused(
                f"The model {self.name!r} makes vectors of {self._seen} dimensions, an index holds {MAX_DIMENSIONS} at "
                "most; ask for fewer with EMBEDDING_DIMENSIONS."
            )
        largest = MAX_NUMBER if (self._seen or 0) <= FULL_PRECISION_DIMENSIONS else MAX_HALF_NUMBER
        if any(max(map(abs, item.embedding)) > largest for item in items):
            raise EmbeddingError(f"{self._where} answered numbers that are too large for a vector")
        return [array("f", item.embedding) for item in items]

    def _refusal(self, status: int, content: bytes) -> Exception:
        said = self._safe(content[:MAX_ERROR_BYTES].decode("utf-8", "replace"))
        told = f"{self._where} answered {status}" + (f": {said}" if said else "")
        if status in TEMPORARY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return EmbeddingError(told)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            why = "refuses EMBEDDING_API_KEY" if self._key else "wants a key, and EMBEDDING_API_KEY is not set"
            return EmbeddingRefused(f"The embedder {why}. {told}")
        if status == HTTPStatus.NOT_FOUND:
            return EmbeddingRefused(
                f"There is no embedder at EMBEDDING_URL, or it knows no model {self.name!r} (EMBEDDING_MODEL). {told}"
            )
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            return EmbeddingRefused(f"The embedder is somewhere else; EMBEDDING_URL must name it directly. {told}")
        return EmbeddingRefused(f"The embedder does not take what it is asked. {told}")

    def _safe(self, said: object) -> str:
        """In one line, bounded, and without the key: servers and libraries like to quote what they were sent."""
        text = str(said)
        if self._key:
            text = text.replace(self._key, "[key]")
        text = " ".join(text.split())
        return text if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]}…"


def batches(texts: Sequence[str], size: int, characters: int = MAX_BATCH_CHARS) -> Iterator[Sequence[str]]:
    """`texts` in order, at most `size` and `characters` at once; a longer text goes alone."""
    start = held = 0
    for end, text in enumerate(texts):
        if end > start and (end - start == size or held + len(text) > characters):
            yield texts[start:end]
            start, held = end, 0
        held += len(text)
    if start < len(texts):
        yield texts[start:]


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
        parts = urlsplit("")
    if not is_whole or "@" in parts.netloc:
        # Not quoted: what stands before an @ is a password.
        raise EmbeddingRefused(
            "EMBEDDING_URL must read like https://host/v1 or file:///folder; a key belongs in EMBEDDING_API_KEY."
        )
    return parts


def _pool(parts: SplitResult, **settings: Any) -> urllib3.PoolManager:
    """By way of the proxy that the environment names for this host, as other programs go."""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc):
        return urllib3.PoolManager(**settings)
    try:
        account = urllib3.util.parse_url(proxy).auth
        headers = urllib3.make_headers(proxy_basic_auth=unquote(account)) if account else None
        return urllib3.ProxyManager(proxy, proxy_headers=headers, **settings)
    except (HTTPError, LocationValueError):
        raise EmbeddingRefused("The proxy that the environment names for EMBEDDING_URL is no address.") from None
