"""SHA-256 and HMAC-SHA-256 (FIPS 180-4, RFC 2104) of every value of a column, as hexadecimal digits."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile import kernel

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
HEX_DIGITS = 64
_BLOCK = 64
_DIGEST = 32


def _primes(count: int) -> list[int]:
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % prime for prime in found):
            found.append(candidate)
        candidate += 1
    return found


def _root_bits(number: int, degree: int) -> int:
    """The first 32 bits of the fraction of a square or cube root."""
    target = number << (32 * degree)
    root = int(float(target) ** (1 / degree))
    while root**degree > target:
        root -= 1
    while (root + 1) ** degree <= target:
        root += 1
    return root & 0xFFFFFFFF


_K = np.array([_root_bits(prime, 3) for prime in _primes(64)], np.uint32)
INITIAL = np.array([_root_bits(prime, 2) for prime in _primes(8)], np.uint32)
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@kernel
def _compress(state: Words, block: Bytes, w: Words) -> None:
    for t in range(16):
        w[t] = (
            np.uint32(block[4 * t]) << np.uint32(24)
            | np.uint32(block[4 * t + 1]) << np.uint32(16)
            | np.uint32(block[4 * t + 2]) << np.uint32(8)
            | np.uint32(block[4 * t + 3])
        )
    for t in range(16, 64):
        x, y = w[t - 15], w[t - 2]
        s0 = _rotated(x, 7) ^ _rotated(x, 18) ^ (x >> np.uint32(3))
        s1 = _rotated(y, 17) ^ _rotated(y, 19) ^ (y >> np.uint32(10))
        w[t] = np.uint32(w[t - 16] + s0 + w[t - 7] + s1)
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for t in range(64):
        s1 = _rotated(e, 6) ^ _rotated(e, 11) ^ _rotated(e, 25)
        t1 = np.uint32(h + s1 + ((e & f) ^ (~e & g)) + _K[t] + w[t])
        s0 = _rotated(a, 2) ^ _rotated(a, 13) ^ _rotated(a, 22)
        t2 = np.uint32(s0 + ((a & b) ^ (a & c) ^ (b & c)))
        h, g, f = g, f, e
        e = np.uint32(d + t1)
        d, c, b = c, b, a
        a = np.uint32(t1 + t2)
    state[0] += a
    state[1] += b
    state[2] += c
    state[3] += d
    state[4] += e
    state[5] += f
    state[6] += g
    state[7] += h


@kernel
def _rotated(x: np.uint32, by: int) -> np.uint32:
    return np.uint32(x >> np.uint32(by)) | np.uint32(x << np.uint32(32 - by))


@kernel
def _finish(state: Words, data: Bytes, before: int, block: Bytes, w: Words) -> None:
    """Takes the data and the padding. `before`: bytes that the state has taken already, whole blocks."""
    size = len(data)
    whole = size // 64 * 64
    for at in range(0, whole, 64):
        _compress(state, data[at : at + 64], w)
    rest = size - whole
    block[:] = 0
    block[:rest] = data[whole:]
    block[rest] = 0x80
    if rest >= 56:
        _compress(state, block, w)
        block[:] = 0
    bits = np.uint64(before + size) * np.uint64(8)
    for i in range(8):
        block[63 - i] = np.uint8(bits >> np.uint64(8 * i) & np.uint64(0xFF))
    _compress(state, block, w)


@kernel
def _store(state: Words, out: Bytes) -> None:
    for i in range(8):
        for j in range(4):
            out[4 * i + j] = np.uint8(state[i] >> np.uint32(24 - 8 * j) & np.uint32(0xFF))


@kernel
def _hashes(  # noqa: PLR0917
    source: Bytes, bounds: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_], inner: Words, outer: Words, out: Bytes
) -> None:
    """`valid` and `outer` may be empty: all values are there; a plain hash."""
    w = np.empty(64, np.uint32)
    block = np.empty(64, np.uint8)
    state = np.empty(8, np.uint32)
    digest = np.empty(32, np.uint8)
    keyed = len(outer) > 0
    at = 0
    for row in range(len(bounds) - 1):
        if len(valid) > 0 and not valid[row]:
            continue
        state[:] = inner
        _finish(state, source[bounds[row] : bounds[row + 1]], 64 if keyed else 0, block, w)
        if keyed:
            _store(state, digest)
            state[:] = outer
            _finish(state, digest, 64, block, w)
        _store(state, digest)
        for i in range(32):
            out[at] = _DIGITS[digest[i] >> 4]
            out[at + 1] = _DIGITS[digest[i] & 15]
            at += 2


def sha256_hex(source: Bytes, bounds: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_], out: Bytes) -> None:
    """The digests of all valid values, back to back; `valid` may be empty: all are there."""
    _hashes(source, bounds, valid, INITIAL, INITIAL[:0], out)


def hmac_sha256_hex(
    key: bytes, source: Bytes, bounds: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_], out: Bytes
) -> None:
    """As `sha256_hex`, with a key."""
    inner, outer = key_states(key)
    _hashes(source, bounds, valid, inner, outer, out)


def key_states(key: bytes) -> tuple[Words, Words]:
    """The states after the key's two blocks: they are the same for every value."""
    padded = np.zeros(_BLOCK, np.uint8)
    short = hashlib.sha256(key).digest() if len(key) > _BLOCK else key
    padded[: len(short)] = np.frombuffer(short, np.uint8)
    states = []
    for pad in (0x36, 0x5C):
        state = INITIAL.copy()
        _compress(state, padded ^ np.uint8(pad), np.empty(64, np.uint32))
        states.append(state)
    return states[0], states[1]
