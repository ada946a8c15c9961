"""Test content codings and their limits (`fetcher/README.md`, "Content codings and types")."""

import gzip
import random
import tracemalloc
import zlib

import brotli
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.content_codings import UnknownCoding, decoder_for

TEXT = b"".join(b"<a href='/%d'>link %d</a>\n" % (n, n * n % 97) for n in range(400))


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def gzip_member(data: bytes, flags: int = 0) -> bytes:
    """Return a gzip member with those optional header fields that `flags` selects (RFC 1952 2.3)."""
    head = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6)
    head += b"\x05\x00extra" if flags & 4 else b""
    head += b"name\0" if flags & 8 else b""
    head += b"comment\0" if flags & 16 else b""
    head += b"\x12\x34" if flags & 2 else b""
    trailer = zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
    return head + raw_deflate(data) + trailer


def decode(
    codings: list[bytes], data: bytes, *, piece: int = 1 << 16, limit: int = 1 << 20, step: int = 4096
) -> bytes:
    """Return all content, and check the size of its pieces.

    A piece may be as large as the largest of these three: a step, the smallest block of brotli, or the piece
    of input.
    """
    decoder = decoder_for(codings, limit=limit, step=step)
    assert decoder is not None
    out: list[bytes] = []
    for at in range(0, len(data), piece):
        pieces = decoder.feed(data[at : at + piece])
        assert all(len(part) <= max(step, piece, 32 << 10) for part in pieces)
        out += pieces
    return b"".join(out + decoder.finish())


CASES = [
    ("gzip", [b"gzip"], gzip.compress(TEXT, mtime=0), TEXT),
    ("x-gzip", [b"x-gzip"], gzip.compress(TEXT, mtime=0), TEXT),
    ("gzip, all header fields", [b"gzip"], gzip_member(TEXT, 2 | 4 | 8 | 16), TEXT),
    ("gzip, members", [b"gzip"], gzip_member(b"1 ") + gzip_member(b"") + gzip_member(TEXT, 8), b"1 " + TEXT),
    ("gzip, zeros after it", [b"gzip"], gzip.compress(TEXT, mtime=0) + bytes(40), TEXT),
    ("gzip, garbage after it", [b"gzip"], gzip.compress(TEXT, mtime=0) + b"<!-- served by -->", TEXT),
    ("gzip, wrong checksum", [b"gzip"], gzip.compress(TEXT, mtime=0)[:-8] + b"\xff" * 8, TEXT),
    ("gzip, no trailer", [b"gzip"], gzip.compress(TEXT, mtime=0)[:-8], TEXT),
    ("gzip, empty", [b"gzip"], gzip.compress(b"", mtime=0), b""),
    ("no gzip", [b"gzip"], TEXT, TEXT),
    ("no gzip, one byte", [b"gzip"], b"x", b"x"),
    ("no gzip, one magic byte", [b"gzip"], b"\x1f", b"\x1f"),
    ("nothing", [b"gzip"], b"", b""),
    ("deflate, wrapped", [b"deflate"], zlib.compress(TEXT), TEXT),
    ("deflate, wrong checksum", [b"deflate"], zlib.compress(TEXT)[:-4] + b"\xff" * 4, TEXT),
    ("deflate, raw", [b"deflate"], raw_deflate(TEXT), TEXT),
    ("deflate, garbage after it", [b"deflate"], zlib.compress(TEXT) + b"garbage", TEXT),
    ("br", [b"br"], brotli.compress(TEXT), TEXT),
    ("br, garbage after it", [b"br"], brotli.compress(TEXT) + b"garbage", TEXT),
    ("identity", [b"identity", b"gzip", b""], gzip.compress(TEXT, mtime=0), TEXT),
    ("two layers", [b"deflate", b"gzip"], gzip.compress(zlib.compress(TEXT), mtime=0), TEXT),
    ("gzip of br", [b"br", b"gzip"], gzip.compress(brotli.compress(TEXT), mtime=0), TEXT),
]


@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
@pytest.mark.parametrize(("name", "codings", "data", "expected"), CASES, ids=[case[0] for case in CASES])
def test_codings(name: str, codings: list[bytes], data: bytes, expected: bytes, piece: int) -> None:
    assert decode(codings, data, piece=piece) == expected


@pytest.mark.parametrize("codings", [[], [b"identity"], [b""]])
def test_without_a_coding_there_is_no_decoder(codings: list[bytes]) -> None:
    assert decoder_for(codings, limit=100, step=10) is None


@pytest.mark.parametrize("codings", [[b"zstd"], [b"compress"], [b"gzip", b"aes128gcm"], [b"gzip"] * 3])
def test_unknown_codings_are_refused(codings: list[bytes]) -> None:
    with pytest.raises(UnknownCoding):
        decoder_for(codings, limit=100, step=10)


NOISY = b"".join(b"%d " % (n * 2654435761 % 1_000_003) for n in range(20_000))
CODED = [("gzip", gzip.compress(NOISY)), ("deflate", zlib.compress(NOISY)), ("deflate", raw_deflate(NOISY))]


@pytest.mark.parametrize(("name", "data"), [*CODED, ("br", brotli.compress(NOISY, quality=5))])
@pytest.mark.parametrize("piece", [1000, 1 << 20])
def test_a_truncated_stream_gives_the_part_before_the_cut(name: str, data: bytes, piece: int) -> None:
    got = decode([name.encode()], data[: len(data) // 2], piece=piece)
    assert NOISY.startswith(got) and len(got) > 0.4 * len(NOISY)


@pytest.mark.parametrize(("name", "data"), CODED)
@pytest.mark.parametrize("piece", [1000, 1 << 20])
def test_a_damaged_stream_gives_the_part_before_the_damage(name: str, data: bytes, piece: int) -> None:
    """The content before the damage is returned. The bytes after the damage may decode to anything or fail."""
    middle = len(data) // 2
    got = decode([name.encode()], data[:middle] + b"\xff" * 400 + data[middle:], piece=piece)
    same = next((at for at, (a, b) in enumerate(zip(got, NOISY, strict=False)) if a != b), len(got))
    whole = decode([name.encode()], data[:middle], piece=piece)
    assert same >= len(whole) - 300 and len(whole) > 0.4 * len(NOISY)


BOMBS = [
    ("gzip", [b"gzip"], lambda size: gzip.compress(bytes(size), 9)),
    ("deflate", [b"deflate"], lambda size: zlib.compress(bytes(size), 9)),
    ("br", [b"br"], lambda size: brotli.compress(bytes(size), quality=3)),
    ("gzip in gzip", [b"gzip", b"gzip"], lambda size: gzip.compress(gzip.compress(bytes(size), 9), 9)),
    ("members", [b"gzip"], lambda size: gzip.compress(bytes(size // 500)) * 500),
]


@pytest.mark.parametrize(("name", "codings", "make"), BOMBS, ids=[bomb[0] for bomb in BOMBS])
def test_a_bomb_ends_at_the_limit(name: str, codings: list[bytes], make) -> None:  # type: ignore[no-untyped-def]
    decoder = decoder_for(codings, limit=10_000, step=2048)
    assert decoder is not None
    out = decoder.feed(make(4 << 20))
    assert decoder.full
    assert sum(map(len, out)) <= 10_000
    assert max(map(len, out), default=0) <= 98_304
    if len(codings) == 1:
        assert sum(map(len, out)) == 10_000


def test_a_flood_of_empty_members_ends() -> None:
    assert decode([b"gzip"], gzip_member(b"a") + gzip_member(b"") * 2000 + gzip_member(b"b")) == b"a"


def test_content_of_exactly_the_limit_is_complete() -> None:
    for size, full in ((10_000, False), (10_001, True)):
        decoder = decoder_for([b"gzip"], limit=10_000, step=2048)
        assert decoder is not None
        assert sum(map(len, decoder.feed(gzip.compress(bytes(size))))) == 10_000
        assert decoder.full is full


def test_a_gzip_of_200_mib_uses_memory_up_to_the_limit() -> None:
    """A body of 204 KB would decode to 200 MiB. The peak of memory use is the limit plus some steps."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1 << 20)
    bomb = b"".join(packer.compress(block) for _ in range(200)) + packer.flush()
    assert len(bomb) < 210_000
    tracemalloc.start()
    decoder = decoder_for([b"gzip"], limit=1 << 20, step=256 << 10)
    assert decoder is not None
    out = decoder.feed(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert decoder.full and sum(map(len, out)) == 1 << 20
    assert peak < 3 << 20


@settings(max_examples=150)
@given(
    st.binary(max_size=3000),
    st.sampled_from([b"gzip", b"deflate", b"br"]),
    st.integers(1, 64),
    st.integers(0, 99),
)
def test_random_damage_neither_raises_nor_exceeds_the_limit(
    data: bytes, name: bytes, piece: int, seed: int
) -> None:
    """Arbitrary bytes, including damaged streams, decode to at most the limit."""
    coded = bytearray({b"gzip": gzip.compress, b"deflate": zlib.compress, b"br": brotli.compress}[name](data))
    generator = random.Random(seed)
    for _ in range(generator.randrange(4)):
        coded[generator.randrange(len(coded))] = generator.randrange(256)
    for body in (bytes(coded), data):
        assert len(decode([name], body, piece=piece, limit=2000, step=64)) <= 2000
        assert len(decode([name, name], body, piece=piece, limit=2000, step=64)) <= 2000


@settings(max_examples=100)
@given(st.binary(max_size=5000), st.sampled_from([b"gzip", b"deflate", b"br"]), st.integers(1, 500))
def test_the_content_is_the_same_however_it_is_cut(data: bytes, name: bytes, piece: int) -> None:
    coded = {b"gzip": gzip.compress, b"deflate": zlib.compress, b"br": brotli.compress}[name](data)
    assert decode([name], coded, piece=piece, step=100) == data
