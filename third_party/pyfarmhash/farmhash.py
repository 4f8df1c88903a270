"""FarmHash fingerprints in plain Python: the part of `pyfarmhash` that TFX's libraries call.

`pyfarmhash` has no Linux wheel, so installing it asks for a C++ compiler and Python's headers on every
machine. TensorFlow Data Validation, which needs it, hashes a handful of feature names with it; for that
plain Python is fast enough (about 5 us a name). The values are those of Google's FarmHash, whose
fingerprints are fixed for all time and all platforms: `Fingerprint32` (farmhashmk) and `Fingerprint64`
(farmhashna) of https://github.com/google/farmhash (MIT licence).

Text is hashed as its UTF-8 bytes.
"""

from __future__ import annotations

_MASK_32 = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF

# FarmHash's constants: large primes between 2^63 and 2^64, and Murmur3's two multipliers.
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
_C1 = 0xCC9E2D51
_C2 = 0x1B873593


def fingerprint64(text: str | bytes) -> int:
    """FarmHash's 64-bit fingerprint, an integer in [0, 2**64)."""
    data = _as_bytes(text)
    if len(data) <= 16:
        return _up_to_16_bytes(data)
    if len(data) <= 32:
        return _up_to_32_bytes(data)
    if len(data) <= 64:
        return _up_to_64_bytes(data)
    return _over_64_bytes(data)


def fingerprint32(text: str | bytes) -> int:
    """FarmHash's 32-bit fingerprint, an integer in [0, 2**32)."""
    data = _as_bytes(text)
    if len(data) <= 4:
        return _up_to_4_bytes(data)
    if len(data) <= 12:
        return _up_to_12_bytes(data)
    if len(data) <= 24:
        return _up_to_24_bytes(data)
    return _over_24_bytes(data)


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8") if isinstance(text, str) else bytes(text)


# 64 bits


def _word64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _rotate64(value: int, shift: int) -> int:
    value &= _MASK_64
    return (value >> shift | value << (64 - shift)) & _MASK_64


def _shift_mix(value: int) -> int:
    value &= _MASK_64
    return value ^ value >> 47


def _mix_pair(low: int, high: int, multiplier: int) -> int:
    """128 bits to 64, after Murmur."""
    a = _shift_mix((low ^ high) * multiplier)
    b = _shift_mix((high ^ a) * multiplier)
    return b * multiplier & _MASK_64


def _up_to_16_bytes(data: bytes) -> int:
    length = len(data)
    multiplier = _K2 + 2 * length
    if length >= 8:
        a = _word64(data, 0) + _K2
        b = _word64(data, length - 8)
        return _mix_pair(
            (_rotate64(b, 37) * multiplier + a) & _MASK_64, (_rotate64(a, 25) + b) * multiplier & _MASK_64, multiplier
        )
    if length >= 4:
        return _mix_pair(length + (_word32(data, 0) << 3), _word32(data, length - 4), multiplier)
    if length > 0:
        y = data[0] + (data[length >> 1] << 8)
        z = length + (data[-1] << 2)
        return _shift_mix(y * _K2 ^ z * _K0) * _K2 & _MASK_64
    return _K2


def _up_to_32_bytes(data: bytes) -> int:
    length = len(data)
    multiplier = _K2 + 2 * length
    a = _word64(data, 0) * _K1
    b = _word64(data, 8)
    c = _word64(data, length - 8) * multiplier
    d = _word64(data, length - 16) * _K2
    return _mix_pair(
        (_rotate64(a + b, 43) + _rotate64(c, 30) + d) & _MASK_64,
        (a + _rotate64(b + _K2, 18) + c) & _MASK_64,
        multiplier,
    )


def _up_to_64_bytes(data: bytes) -> int:
    length = len(data)
    multiplier = _K2 + 2 * length
    a = _word64(data, 0) * _K2
    b = _word64(data, 8)
    c = _word64(data, length - 8) * multiplier
    d = _word64(data, length - 16) * _K2
    y = (_rotate64(a + b, 43) + _rotate64(c, 30) + d) & _MASK_64
    z = _mix_pair(y, (a + _rotate64(b + _K2, 18) + c) & _MASK_64, multiplier)
    e = _word64(data, 16) * multiplier
    f = _word64(data, 24)
    g = (y + _word64(data, length - 32)) * multiplier
    h = (z + _word64(data, length - 24)) * multiplier
    return _mix_pair(
        (_rotate64(e + f, 43) + _rotate64(g, 30) + h) & _MASK_64,
        (e + _rotate64(f + a, 18) + g) & _MASK_64,
        multiplier,
    )


def _weak_hash_32_bytes(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_word64(data, at + 8 * i) for i in range(4))
    a = (a + w) & _MASK_64
    b = _rotate64(b + a + z, 21)
    c = a
    a = (a + x + y) & _MASK_64
    b += _rotate64(a, 44)
    return (a + z) & _MASK_64, (b + c) & _MASK_64


def _over_64_bytes(data: bytes) -> int:
    length = len(data)
    seed = 81
    y = (seed * _K1 + 113) & _MASK_64
    z = _shift_mix(y * _K2 + 113) * _K2 & _MASK_64
    x = (seed * _K2 + _word64(data, 0)) & _MASK_64
    v = w = (0, 0)

    def mix_64_bytes(at: int, multiplier: int, w_factor: int, v_factor: int) -> None:
        nonlocal x, y, z, v, w
        x = _rotate64(x + y + v[0] + _word64(data, at + 8), 37) * multiplier & _MASK_64
        y = _rotate64(y + v[1] + _word64(data, at + 48), 42) * multiplier & _MASK_64
        x ^= w[1] * w_factor & _MASK_64
        y = (y + v[0] * v_factor + _word64(data, at + 40)) & _MASK_64
        z = _rotate64(z + w[0], 33) * multiplier & _MASK_64
        v = _weak_hash_32_bytes(data, at, v[1] * multiplier, x + w[0])
        w = _weak_hash_32_bytes(data, at + 32, z + w[1], y + _word64(data, at + 16))
        z, x = x, z

    for at in range(0, (length - 1) // 64 * 64, 64):
        mix_64_bytes(at, _K1, 1, 1)
    # The last 64 bytes are mixed once more, whole, so they overlap the block before.
    multiplier = _K1 + ((z & 0xFF) << 1)
    w = (w[0] + (length - 1 & 63), w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    mix_64_bytes(length - 64, multiplier, 9, 9)
    return _mix_pair(
        (_mix_pair(v[0], w[0], multiplier) + _shift_mix(y) * _K0 + z) & _MASK_64,
        (_mix_pair(v[1], w[1], multiplier) + x) & _MASK_64,
        multiplier,
    )


# 32 bits


def _word32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _rotate32(value: int, shift: int) -> int:
    value &= _MASK_32
    return (value >> shift | value << (32 - shift)) & _MASK_32


def _scramble(value: int) -> int:
    return _rotate32(value * _C1, 17) * _C2 & _MASK_32


def _step(h: int) -> int:
    return (_rotate32(h, 19) * 5 + 0xE6546B64) & _MASK_32


def _murmur(a: int, h: int) -> int:
    return _step(h ^ _scramble(a))


def _finish(h: int) -> int:
    h &= _MASK_32
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK_32
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK_32
    return h ^ h >> 16


def _up_to_4_bytes(data: bytes) -> int:
    b, c = 0, 9
    for byte in data:
        signed = byte - 256 if byte > 127 else byte  # C's signed char
        b = (b * _C1 + signed) & _MASK_32
        c ^= b
    return _finish(_murmur(b, _murmur(len(data), c)))


def _up_to_12_bytes(data: bytes) -> int:
    length = len(data)
    a = length + _word32(data, 0)
    b = 5 * length + _word32(data, length - 4)
    c = 9 + _word32(data, length >> 1 & 4)
    return _finish(_murmur(c, _murmur(b, _murmur(a, 5 * length))))


def _up_to_24_bytes(data: bytes) -> int:
    length = len(data)
    half = length >> 1
    a, b, c = _word32(data, half - 4), _word32(data, 4), _word32(data, length - 8)
    d, e, f = _word32(data, half), _word32(data, 0), _word32(data, length - 4)
    h = (d * _C1 + length) & _MASK_32
    a = _rotate32(a, 12) + f
    h = (_murmur(c, h) + a) & _MASK_32
    a = _rotate32(a, 3) + c
    h = (_murmur(e, h) + a) & _MASK_32
    a = _rotate32(a + f, 12) + d
    return _finish(_murmur(b, h) + a)


def _over_24_bytes(data: bytes) -> int:
    length = len(data)
    h = length
    g = f = _C1 * length & _MASK_32
    a0, a1, a3, a2, a4 = (_scramble(_word32(data, length - back)) for back in (4, 8, 12, 16, 20))
    h = _step(_step(h ^ a0) ^ a2)
    g = _step(_step(g ^ a1) ^ a3)
    f = (_rotate32(f + a4, 19) + 113) & _MASK_32
    for at in range(0, (length - 1) // 20 * 20, 20):
        a, b, c, d, e = (_word32(data, at + 4 * i) for i in range(5))
        h, g, f = (h + a) & _MASK_32, (g + b) & _MASK_32, (f + c) & _MASK_32
        h = (_murmur(d, h) + e) & _MASK_32
        g = (_murmur(c, g) + a) & _MASK_32
        f = (_murmur(b + e * _C1, f) + d) & _MASK_32
        f = (f + g) & _MASK_32
        g = (g + f) & _MASK_32
    g = _rotate32(_rotate32(g, 11) * _C1, 17) * _C1 & _MASK_32
    f = _rotate32(_rotate32(f, 11) * _C1, 17) * _C1 & _MASK_32
    for part in (g, f):
        h = _rotate32(_step(h + part), 17) * _C1 & _MASK_32
    return h
