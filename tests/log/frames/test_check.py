"""Checking chunks of frames, compiled and in Python."""

from __future__ import annotations

import random

import numpy as np
import pytest

from penstock.log.frames.check import _check_in_python, check_chunk
from penstock.log.frames.format import encode_frame


@pytest.mark.parametrize("kernels", [False, True])
def test_both_checks_accept_whole_frames_and_stop_at_the_first_damaged_one(kernels: bool) -> None:
    from penstock.log.frames.kernels import crc_of

    data = [b"", b"x", bytes(7), random.Random(1).randbytes(1000), bytes(5000)]
    raw = b"".join(b"".join(encode_frame(7, 3, 10 + n, 99, 64, (item,), ())[0]) for n, item in enumerate(data))
    check_frames = check_chunk if kernels else _check_in_python
    table, at, need, reason, more = check_frames(raw, 7, 10)
    assert more == 0
    assert (table[:, 1].tolist(), at, need, reason) == ([len(item) for item in data], len(raw), 64, "")
    rng = random.Random(2)
    for _ in range(300):
        bad = bytearray(raw)
        where = rng.randrange(len(bad))
        bad[where] ^= 1 << rng.randrange(8)
        try:
            _, stopped, _, reason, _ = check_frames(bytes(bad), 7, 10)
        except Exception as error:  # a version that nobody knows
            assert "is not known" in str(error)
            continue
        assert stopped <= where
        assert reason or stopped < len(raw)
    assert crc_of(np.frombuffer(b"123456789", np.uint8), 0, 9) == 0xE3069283
