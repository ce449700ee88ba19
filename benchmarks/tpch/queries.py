"""TPC-H queries as plain Dask dataframe code, without hyperplane, options or hints.

The same functions run on a default LocalCluster and on hyperplane's cluster. A query takes an
object whose attributes are the tables, and returns a pandas dataframe.
"""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import pandas as pd

DAY = pd.Timestamp


class Tables:
    """The tables of a folder as attributes, each opened on access."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return dd.read_parquet(f"{self._folder}/{name}")


def q1(t: Tables) -> pd.DataFrame:
    items = t.lineitem
    items = items[items.l_shipdate <= DAY("1998-09-02")]
    price = items.l_extendedprice * (1 - items.l_discount)
    items = items.assign(disc_price=price, charge=price * (1 + items.l_tax))
    result = items.groupby(["l_returnflag", "l_linestatus"]).agg(
        sum_qty=("l_quantity", "sum"),
        sum_base_price=("l_extendedprice", "sum"),
        sum_disc_price=("disc_price", "sum"),
        sum_charge=("charge", "sum"),
        avg_qty=("l_quantity", "mean"),
        avg_price=("l_extendedprice", "mean"),
        avg_disc=("l_discount", "mean"),
        count_order=("l_orderkey", "count"),
    )
    return result.reset_index().compute()


def q3(t: Tables) -> pd.DataFrame:
    customers, orders, items = t.customer, t.orders, t.lineitem
    customers = customers[customers.c_mktsegment == "BUILDING"]
    orders = orders[orders.o_orderdate < DAY("1995-03-15")]
    items = items[items.l_shipdate > DAY("1995-03-15")]
    joined = customers.merge(orders, left_on="c_custkey", right_on="o_custkey")
    joined = joined.merge(items, left_on="o_orderkey", right_on="l_orderkey")
    joined = joined.assign(revenue=joined.l_extendedprice * (1 - joined.l_discount))
    result = joined.groupby(["l_orderkey", "o_orderdate", "o_shippriority"]).revenue.sum()
    result = result.reset_index().compute()
    return result.sort_values(["revenue", "o_orderdate"], ascending=[False, True]).head(10)


def q5(t: Tables) -> pd.DataFrame:
    orders, region = t.orders, t.region
    region = region[region.r_name == "ASIA"]
    in_year = (orders.o_orderdate >= DAY("1994-01-01")) & (orders.o_orderdate < DAY("1995-01-01"))
    orders = orders[in_year]
    joined = region.merge(t.nation, left_on="r_regionkey", right_on="n_regionkey")
    joined = joined.merge(t.customer, left_on="n_nationkey", right_on="c_nationkey")
    joined = joined.merge(orders, left_on="c_custkey", right_on="o_custkey")
    joined = joined.merge(t.lineitem, left_on="o_orderkey", right_on="l_orderkey")
    joined = joined.merge(
        t.supplier,
        left_on=["l_suppkey", "n_nationkey"],
        right_on=["s_suppkey", "s_nationkey"],
    )
    joined = joined.assign(revenue=joined.l_extendedprice * (1 - joined.l_discount))
    return joined.groupby("n_name").revenue.sum().reset_index().compute()


def q6(t: Tables) -> pd.DataFrame:
    items = t.lineitem
    items = items[
        (items.l_shipdate >= DAY("1994-01-01"))
        & (items.l_shipdate < DAY("1995-01-01"))
        & (items.l_discount >= 0.05 - 1e-9)
        & (items.l_discount <= 0.07 + 1e-9)
        & (items.l_quantity < 24)
    ]
    revenue = (items.l_extendedprice * items.l_discount).sum().compute()
    return pd.DataFrame({"revenue": [revenue]})


def q9(t: Tables) -> pd.DataFrame:
    parts = t.part
    parts = parts[parts.p_name.str.contains("green")]
    joined = parts.merge(t.partsupp, left_on="p_partkey", right_on="ps_partkey")
    joined = joined.merge(t.supplier, left_on="ps_suppkey", right_on="s_suppkey")
    joined = joined.merge(
        t.lineitem,
        left_on=["ps_partkey", "ps_suppkey"],
        right_on=["l_partkey", "l_suppkey"],
    )
    joined = joined.merge(t.orders, left_on="l_orderkey", right_on="o_orderkey")
    joined = joined.merge(t.nation, left_on="s_nationkey", right_on="n_nationkey")
    profit = joined.l_extendedprice * (1 - joined.l_discount)
    joined = joined.assign(
        profit=profit - joined.ps_supplycost * joined.l_quantity,
        o_year=joined.o_orderdate.dt.year,
    )
    return joined.groupby(["n_name", "o_year"]).profit.sum().reset_index().compute()


def q10(t: Tables) -> pd.DataFrame:
    orders, items = t.orders, t.lineitem
    in_quarter = (orders.o_orderdate >= DAY("1993-10-01")) & (
        orders.o_orderdate < DAY("1994-01-01")
    )
    orders = orders[in_quarter]
    items = items[items.l_returnflag == "R"]
    joined = t.customer.merge(orders, left_on="c_custkey", right_on="o_custkey")
    joined = joined.merge(items, left_on="o_orderkey", right_on="l_orderkey")
    joined = joined.merge(t.nation, left_on="c_nationkey", right_on="n_nationkey")
    joined = joined.assign(revenue=joined.l_extendedprice * (1 - joined.l_discount))
    keys = ["c_custkey", "c_name", "c_acctbal", "c_phone", "n_name", "c_address", "c_comment"]
    result = joined.groupby(keys).revenue.sum().reset_index().compute()
    return result.sort_values(["revenue", "c_custkey"], ascending=[False, True]).head(20)


def q18(t: Tables) -> pd.DataFrame:
    sums = t.lineitem.groupby("l_orderkey").l_quantity.sum().reset_index()
    large = sums[sums.l_quantity > 300]
    joined = t.orders.merge(large, left_on="o_orderkey", right_on="l_orderkey")
    joined = joined.merge(t.customer, left_on="o_custkey", right_on="c_custkey")
    keys = ["c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice"]
    result = joined.groupby(keys).l_quantity.sum().reset_index().compute()
    return result.sort_values(["o_totalprice", "o_orderdate"], ascending=[False, True]).head(100)


def q21(t: Tables) -> pd.DataFrame:
    items, orders, nation = t.lineitem, t.orders, t.nation
    late = items[items.l_receiptdate > items.l_commitdate]
    suppliers = items[["l_orderkey", "l_suppkey"]].drop_duplicates()
    suppliers = suppliers.groupby("l_orderkey").l_suppkey.count().reset_index()
    shared = suppliers[suppliers.l_suppkey > 1][["l_orderkey"]]
    late_suppliers = late[["l_orderkey", "l_suppkey"]].drop_duplicates()
    late_suppliers = late_suppliers.groupby("l_orderkey").l_suppkey.count().reset_index()
    alone = late_suppliers[late_suppliers.l_suppkey == 1][["l_orderkey"]]
    joined = late.merge(shared, on="l_orderkey").merge(alone, on="l_orderkey")
    orders = orders[orders.o_orderstatus == "F"]
    joined = joined.merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    joined = joined.merge(t.supplier, left_on="l_suppkey", right_on="s_suppkey")
    nation = nation[nation.n_name == "SAUDI ARABIA"]
    joined = joined.merge(nation, left_on="s_nationkey", right_on="n_nationkey")
    result = joined.groupby("s_name").l_orderkey.count().rename("numwait").reset_index().compute()
    return result.sort_values(["numwait", "s_name"], ascending=[False, True]).head(100)


QUERIES = {"q1": q1, "q3": q3, "q5": q5, "q6": q6, "q9": q9, "q10": q10, "q18": q18, "q21": q21}
