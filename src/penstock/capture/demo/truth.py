"""What the demo shop holds in the end, and how many changes led there: from the plan alone, never from the bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.capture.demo import shop
from penstock.capture.demo.plan import Ids, Plan
from penstock.capture.demo.rows import arrow_array


@dataclass(frozen=True, slots=True)
class Counts:
    inserts: int
    updates: int
    deletes: int

    @property
    def changes(self) -> int:
        return self.inserts + self.updates + self.deletes


@dataclass(frozen=True, slots=True)
class Truth:
    """By table name (`shop.orders`): the final rows, sorted by key, in physical forms; and the counts of changes."""

    tables: dict[str, pa.Table]
    counts: dict[str, Counts]

    @property
    def changes(self) -> int:
        return sum(counts.changes for counts in self.counts.values())


def truth(seed: int, changes: int, *, chunks: int | None = None) -> Truth:
    """The shop after the first `chunks` files of the demo stream; after all of them by default."""
    plan = Plan(seed, changes)
    last = (plan.chunks if chunks is None else chunks) - 1
    products = plan.product_ids()
    customers = np.arange(1, (last + 1) * plan.customers_per_chunk + 1, dtype=np.int64)
    age = last - plan.customer_chunk(customers)
    customer_updated = plan.customer_updated(customers) & (age >= 1)
    customer_deleted = plan.customer_deleted(customers) & (age >= 2)
    orders = np.arange(1, (last + 1) * plan.orders_per_chunk + 1, dtype=np.int64)
    age = last - plan.order_chunk(orders)
    early = plan.paid_early(orders)
    order_deleted = plan.order_deleted(orders) & (age >= 2)
    stage = np.where(age >= 1, 2, early.astype(np.int64))
    items = plan.items(orders)
    kept_orders, kept_stage = orders[~order_deleted], stage[~order_deleted]
    item_orders, lines, _ = shop.item_keys(plan, kept_orders)
    altered = last >= plan.alter_chunk
    kept_customers = customers[~customer_deleted]
    product_stage = plan.product_stage(products, last)
    return Truth(
        {
            "shop.customers": _table(
                plan, shop.CUSTOMERS, kept_customers, customer_updated[~customer_deleted].astype(np.int64)
            ),
            "shop.products": _table(plan, shop.PRODUCTS, products, product_stage),
            "shop.orders": _table(plan, shop.ORDERS_NOTED if altered else shop.ORDERS, kept_orders, kept_stage),
            "shop.order_items": _table(plan, shop.ORDER_ITEMS, item_orders, lines),
        },
        {
            "shop.customers": Counts(len(customers), int(customer_updated.sum()), int(customer_deleted.sum())),
            "shop.products": Counts(len(products), int(product_stage.sum()), 0),
            "shop.orders": Counts(len(orders), int(early.sum() + (age >= 1).sum()), int(order_deleted.sum())),
            "shop.order_items": Counts(int(items.sum()), 0, int(items[order_deleted].sum())),
        },
    )


def _table(plan: Plan, table: shop.Table, ids: Ids, stage: Ids) -> pa.Table:
    columns = table.content(plan, ids, stage)
    arrays = [arrow_array(form, column) for form, column in zip(table.forms, columns, strict=True)]
    return pa.table(arrays, names=[name for name, _ in table.columns])
