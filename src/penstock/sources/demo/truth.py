"""What the demo shop holds in the end, and how many changes led there: computed from the plan, never from the bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.sources.demo import shop
from penstock.sources.demo.plan import Ids, Plan
from penstock.sources.demo.rows import arrow_array
from penstock.sources.settings import DemoSettings


@dataclass(frozen=True, slots=True)
class TableTruth:
    """One table: its final rows in physical forms, sorted by key; and how many changes led there."""

    rows: pa.Table
    inserts: int
    updates: int
    deletes: int

    @property
    def changes(self) -> int:
        return self.inserts + self.updates + self.deletes


def demo_truth(settings: DemoSettings) -> dict[str, TableTruth]:
    """By table name (`shop.orders`): the tables after a complete run of this demo."""
    return truth(settings.seed, settings.changes)


def truth(seed: int, changes: int, *, chunks: int | None = None) -> dict[str, TableTruth]:
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
    product_stage = plan.product_stage(products, last)
    customer_stage = customer_updated[~customer_deleted].astype(np.int64)
    order_updates = int(early.sum() + (age >= 1).sum())
    orders_table = shop.ORDERS_NOTED if last >= plan.alter_chunk else shop.ORDERS
    return {
        "shop.customers": TableTruth(
            _table(plan, shop.CUSTOMERS, customers[~customer_deleted], customer_stage),
            len(customers),
            int(customer_updated.sum()),
            int(customer_deleted.sum()),
        ),
        "shop.products": TableTruth(
            _table(plan, shop.PRODUCTS, products, product_stage), len(products), int(product_stage.sum()), 0
        ),
        "shop.orders": TableTruth(
            _table(plan, orders_table, kept_orders, kept_stage), len(orders), order_updates, int(order_deleted.sum())
        ),
        "shop.order_items": TableTruth(
            _table(plan, shop.ORDER_ITEMS, item_orders, lines), int(items.sum()), 0, int(items[order_deleted].sum())
        ),
    }


def _table(plan: Plan, table: shop.Table, ids: Ids, stage: Ids) -> pa.Table:
    columns = table.content(plan, ids, stage)
    arrays = [arrow_array(form, column) for form, column in zip(table.forms, columns, strict=True)]
    return pa.table(arrays, names=[name for name, _ in table.columns])
