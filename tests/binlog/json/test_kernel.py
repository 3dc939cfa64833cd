"""The kernel that prints binary JSON says what `binary.py` says, or leaves a document to it."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.binlog.json.binary import jsonb_to_text
from penstock.binlog.json.kernel import TEXT_MIN, TEXT_RATIO_MAX, print_documents
from penstock.binlog.types import ColumnType as C
from tests.binlog.build import image, rows, table_map
from tests.binlog.json.encode import binary_json
from tests.binlog.test_presence import decode
from tests.support.budget import chosen_seed, scaled

TEXTS = [
    "",
    "a",
    "key",
    "ü",
    "日本",
    "😀",
    'q"x',
    "back\\slash",
    "tab\t\n\r\b\f",
    "\1\x1f",
    "\x7f",
    "/",
    "é" * 60,
    "x" * 200,
]
NUMBERS = [0, 1, -1, 2**15, -(2**15), 2**16, 2**31, -(2**31), 2**32, 2**63, -(2**63), 2**64 - 1]
DOUBLES = [
    0.1,
    1.0,
    -1.0,
    1e14,
    999999999999999.9,
    1e15,
    1e16,
    1e-4,
    9.9e-5,
    1e100,
    5e-324,
    -0.0,
    0.3,
    123456.789,
    1 / 3,
]


def printed(documents: list[bytes]) -> list[str | None]:
    """None for what is left to `binary.py`."""
    data = np.frombuffer(b"".join(documents), np.uint8)
    starts = np.cumsum([0, *map(len, documents)]).astype(np.int32)
    out = np.empty(TEXT_MIN * len(documents) + TEXT_RATIO_MAX * len(data), np.uint8)
    offsets: npt.NDArray[np.int32] = np.empty(len(documents) + 1, np.int32)
    left: npt.NDArray[np.bool_] = np.empty(len(documents), np.bool_)
    print_documents(data, starts, out, offsets, left)
    return [
        None if left[i] else out[offsets[i] : offsets[i + 1]].tobytes().decode("utf-8", "surrogateescape")
        for i in range(len(documents))
    ]


def value(choice: random.Random, depth: int = 0) -> Any:
    if depth < 4 and choice.random() < 0.5:
        count = choice.choice((0, 1, 3, 6))
        if choice.random() < 0.5:
            return [value(choice, depth + 1) for _ in range(count)]
        return {choice.choice(TEXTS) + str(k): value(choice, depth + 1) for k in range(count)}
    short = round(choice.uniform(-1e6, 1e6), choice.randrange(9))
    scalars = [None, True, False, choice.choice(NUMBERS), choice.choice(TEXTS), choice.getrandbits(40), short]
    return choice.choice(scalars)


def test_documents() -> None:
    seed = chosen_seed()
    choice = random.Random(seed)
    documents = [b"", *(binary_json(value(choice)) for _ in range(scaled(2000)))]
    documents += [
        binary_json(one) for one in ([1] * 30_000, {"big": "y" * 70_000}, ["x" * 100] * 800, [2**31] * 20_000)
    ]
    assert printed(documents) == [jsonb_to_text(document) for document in documents]


def test_doubles() -> None:
    """The shortest text, or none."""
    seed = chosen_seed()
    choice = random.Random(seed)
    doubles = DOUBLES + [
        float(f"{choice.randrange(10 ** choice.randrange(1, 18))}e{choice.randrange(-20, 20)}")
        for _ in range(scaled(2000))
    ]
    doubles += [one for one in (struct.unpack("<d", choice.randbytes(8))[0] for _ in range(500)) if math.isfinite(one)]
    documents = [binary_json(one) for one in doubles]
    for one, document, text in zip(doubles, documents, printed(documents), strict=True):
        assert text in (None, jsonb_to_text(document)), one
        digits = len(repr(one).replace(".", "").replace("-", "").strip("0"))
        assert text is not None or digits > 15 or not 1e-4 <= abs(one) < 1e15, one


def test_damaged_documents() -> None:
    """It never prints what `binary.py` refuses, but for strings that are not UTF-8, which are looked at afterwards."""
    seed = chosen_seed()
    choice = random.Random(seed)
    good = [binary_json(value(choice)) for _ in range(200)]
    damaged = []
    for _ in range(scaled(4000)):
        raw = bytearray(choice.choice(good))
        for _ in range(choice.choice((1, 1, 3))):
            raw[choice.randrange(len(raw))] = choice.choice((choice.randrange(256), 0, 0xFF))
        damaged.append(bytes(raw[: choice.randrange(1, len(raw) + 1)] if choice.random() < 0.1 else raw))
    for document, text in zip(damaged, printed(damaged), strict=True):
        if text is None or any("\udc80" <= letter <= "\udcff" for letter in text):
            continue
        assert text == jsonb_to_text(document), f"seed {seed}: {document.hex()}"


def test_a_column_of_both_kinds() -> None:
    """Some documents are the kernel's, some are left: each text stands in its own row."""
    decimal = b"\x0f\xf6\x04\x04\x02\x8c\x22"
    documents = [
        binary_json({"a": [1]}),
        decimal,
        None,
        binary_json("x"),
        decimal,
        binary_json(1 / 3),
        b"\x0c\x03\xed\xa0\x80",
    ]
    wanted = ['{"a": [1]}', "12.34", None, '"x"', "12.34", "0.3333333333333333", '"\ufffd"']
    for count in (len(documents), 1, 2, 6):
        values = [None if one is None else struct.pack("<I", len(one)) + one for one in documents[:count]]
        (found,) = decode(table_map([(C.JSON, b"\4")]) + rows(30, 1, [image([one]) for one in values]))
        found.after[0].validate(full=True)
        assert found.after[0].to_pylist() == wanted[:count]
