"""A store in three schema versions, with the migrations between them."""

from __future__ import annotations

import dataclasses
import datetime
import decimal

import pydantic

from penstock.state import Migration, StateDescriptor, model
from penstock.state.types import codecs


@dataclasses.dataclass
class OrderV1:
    number: int
    item: str


@dataclasses.dataclass
class OrderV2:
    number: int
    items: list[str]


class OrderV3(pydantic.BaseModel):
    number: int
    items: list[str]
    when: datetime.datetime | None = None
    price: decimal.Decimal = decimal.Decimal("0")


V1: StateDescriptor[int, OrderV1] = StateDescriptor("orders", "shop", codecs.u64, model(OrderV1))


TO_2 = Migration(1, model(OrderV1), lambda old: OrderV2(old.number, [old.item]))


V2: StateDescriptor[int, OrderV2] = StateDescriptor(
    "orders", "shop", codecs.u64, model(OrderV2), schema_version=2, migrations=(TO_2,)
)


TO_3 = Migration(2, model(OrderV2), lambda old: OrderV3(number=old.number, items=old.items))


V3: StateDescriptor[int, OrderV3] = StateDescriptor(
    "orders", "shop", codecs.u64, model(OrderV3, codecs.msgpack), schema_version=3, migrations=(TO_2, TO_3)
)
