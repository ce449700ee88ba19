"""The same TPC-H queries for DuckDB, which is the reference for answers, and for Polars."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import polars as pl

SQL = {
    "q1": """
select l_returnflag, l_linestatus, sum(l_quantity) sum_qty, sum(l_extendedprice) sum_base_price,
  sum(l_extendedprice * (1 - l_discount)) sum_disc_price,
  sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) sum_charge, avg(l_quantity) avg_qty,
  avg(l_extendedprice) avg_price, avg(l_discount) avg_disc, count(*) count_order
from lineitem where l_shipdate <= '1998-09-02' group by all""",
    "q3": """
select l_orderkey, o_orderdate, o_shippriority, sum(l_extendedprice * (1 - l_discount)) revenue
from customer, orders, lineitem
where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
  and o_orderdate < '1995-03-15' and l_shipdate > '1995-03-15'
group by all order by revenue desc, o_orderdate limit 10""",
    "q5": """
select n_name, sum(l_extendedprice * (1 - l_discount)) revenue
from customer, orders, lineitem, supplier, nation, region
where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
  and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
  and r_name = 'ASIA' and o_orderdate >= '1994-01-01' and o_orderdate < '1995-01-01'
group by all""",
    "q6": """
select sum(l_extendedprice * l_discount) revenue from lineitem
where l_shipdate >= '1994-01-01' and l_shipdate < '1995-01-01'
  and l_discount between 0.05 - 1e-9 and 0.07 + 1e-9 and l_quantity < 24""",
    "q9": """
select n_name, year(o_orderdate) o_year,
  sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity) profit
from part, supplier, lineitem, partsupp, orders, nation
where s_suppkey = l_suppkey and ps_suppkey = l_suppkey and ps_partkey = l_partkey
  and p_partkey = l_partkey and o_orderkey = l_orderkey and s_nationkey = n_nationkey
  and p_name like '%green%' group by all""",
    "q10": """
select c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment,
  sum(l_extendedprice * (1 - l_discount)) revenue
from customer, orders, lineitem, nation
where c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate >= '1993-10-01'
  and o_orderdate < '1994-01-01' and l_returnflag = 'R' and c_nationkey = n_nationkey
group by all order by revenue desc, c_custkey limit 20""",
    "q18": """
select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) l_quantity
from customer, orders, lineitem
where o_orderkey in
    (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 300)
  and c_custkey = o_custkey and o_orderkey = l_orderkey
group by all order by o_totalprice desc, o_orderdate limit 100""",
    "q21": """
select s_name, count(*) numwait from supplier, lineitem l1, orders, nation
where s_suppkey = l1.l_suppkey and o_orderkey = l1.l_orderkey and o_orderstatus = 'F'
  and l1.l_receiptdate > l1.l_commitdate
  and exists (select * from lineitem l2
    where l2.l_orderkey = l1.l_orderkey and l2.l_suppkey <> l1.l_suppkey)
  and not exists (select * from lineitem l3 where l3.l_orderkey = l1.l_orderkey
    and l3.l_suppkey <> l1.l_suppkey and l3.l_receiptdate > l3.l_commitdate)
  and s_nationkey = n_nationkey and n_name = 'SAUDI ARABIA'
group by all order by numwait desc, s_name limit 100""",
}

Scan = Callable[[str], pl.LazyFrame]
REVENUE = (pl.col("l_extendedprice") * (1 - pl.col("l_discount"))).alias("revenue")


def _q1(t: Scan) -> pl.LazyFrame:
    price = pl.col("l_extendedprice") * (1 - pl.col("l_discount"))
    items = t("lineitem").filter(pl.col("l_shipdate") <= datetime(1998, 9, 2))
    return items.group_by("l_returnflag", "l_linestatus").agg(
        pl.sum("l_quantity").alias("sum_qty"),
        pl.sum("l_extendedprice").alias("sum_base_price"),
        price.sum().alias("sum_disc_price"),
        (price * (1 + pl.col("l_tax"))).sum().alias("sum_charge"),
        pl.mean("l_quantity").alias("avg_qty"),
        pl.mean("l_extendedprice").alias("avg_price"),
        pl.mean("l_discount").alias("avg_disc"),
        pl.len().alias("count_order"),
    )


def _q3(t: Scan) -> pl.LazyFrame:
    day = datetime(1995, 3, 15)
    orders = t("orders").filter(pl.col("o_orderdate") < day)
    joined = t("customer").filter(pl.col("c_mktsegment") == "BUILDING")
    joined = joined.join(orders, left_on="c_custkey", right_on="o_custkey")
    items = t("lineitem").filter(pl.col("l_shipdate") > day)
    joined = joined.join(items, left_on="o_orderkey", right_on="l_orderkey", coalesce=False)
    result = joined.group_by("l_orderkey", "o_orderdate", "o_shippriority").agg(REVENUE.sum())
    return result.sort("revenue", "o_orderdate", descending=[True, False]).head(10)


def _q5(t: Scan) -> pl.LazyFrame:
    day = pl.col("o_orderdate")
    orders = t("orders").filter((day >= datetime(1994, 1, 1)) & (day < datetime(1995, 1, 1)))
    joined = t("region").filter(pl.col("r_name") == "ASIA")
    joined = joined.join(t("nation"), left_on="r_regionkey", right_on="n_regionkey")
    joined = joined.join(t("customer"), left_on="n_nationkey", right_on="c_nationkey")
    joined = joined.join(orders, left_on="c_custkey", right_on="o_custkey")
    joined = joined.join(t("lineitem"), left_on="o_orderkey", right_on="l_orderkey")
    both = {"left_on": ["l_suppkey", "n_nationkey"], "right_on": ["s_suppkey", "s_nationkey"]}
    joined = joined.join(t("supplier"), **both)
    return joined.group_by("n_name").agg(REVENUE.sum())


def _q6(t: Scan) -> pl.LazyFrame:
    day, discount = pl.col("l_shipdate"), pl.col("l_discount")
    items = t("lineitem").filter(
        (day >= datetime(1994, 1, 1))
        & (day < datetime(1995, 1, 1))
        & discount.is_between(0.05 - 1e-9, 0.07 + 1e-9)
        & (pl.col("l_quantity") < 24)
    )
    return items.select((pl.col("l_extendedprice") * discount).sum().alias("revenue"))


def _q9(t: Scan) -> pl.LazyFrame:
    joined = t("part").filter(pl.col("p_name").str.contains("green", literal=True))
    joined = joined.join(t("partsupp"), left_on="p_partkey", right_on="ps_partkey")
    joined = joined.join(t("supplier"), left_on="ps_suppkey", right_on="s_suppkey")
    both = {"left_on": ["p_partkey", "ps_suppkey"], "right_on": ["l_partkey", "l_suppkey"]}
    joined = joined.join(t("lineitem"), **both)
    joined = joined.join(t("orders"), left_on="l_orderkey", right_on="o_orderkey")
    joined = joined.join(t("nation"), left_on="s_nationkey", right_on="n_nationkey")
    profit = REVENUE - pl.col("ps_supplycost") * pl.col("l_quantity")
    year = pl.col("o_orderdate").dt.year().alias("o_year")
    return joined.group_by("n_name", year).agg(profit.sum().alias("profit"))


def _q10(t: Scan) -> pl.LazyFrame:
    day = pl.col("o_orderdate")
    orders = t("orders").filter((day >= datetime(1993, 10, 1)) & (day < datetime(1994, 1, 1)))
    items = t("lineitem").filter(pl.col("l_returnflag") == "R")
    joined = t("customer").join(orders, left_on="c_custkey", right_on="o_custkey")
    joined = joined.join(items, left_on="o_orderkey", right_on="l_orderkey")
    joined = joined.join(t("nation"), left_on="c_nationkey", right_on="n_nationkey")
    keys = ["c_custkey", "c_name", "c_acctbal", "c_phone", "n_name", "c_address", "c_comment"]
    result = joined.group_by(keys).agg(REVENUE.sum())
    return result.sort("revenue", "c_custkey", descending=[True, False]).head(20)


def _q18(t: Scan) -> pl.LazyFrame:
    large = t("lineitem").group_by("l_orderkey").agg(pl.sum("l_quantity"))
    large = large.filter(pl.col("l_quantity") > 300)
    joined = t("orders").join(large, left_on="o_orderkey", right_on="l_orderkey")
    joined = joined.join(t("customer"), left_on="o_custkey", right_on="c_custkey", coalesce=False)
    keys = ["c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice"]
    result = joined.group_by(keys).agg(pl.sum("l_quantity"))
    return result.sort("o_totalprice", "o_orderdate", descending=[True, False]).head(100)


def _q21(t: Scan) -> pl.LazyFrame:
    items = t("lineitem")
    late = items.filter(pl.col("l_receiptdate") > pl.col("l_commitdate"))
    suppliers = pl.col("l_suppkey").n_unique()
    shared = items.group_by("l_orderkey").agg(suppliers).filter(pl.col("l_suppkey") > 1)
    alone = late.group_by("l_orderkey").agg(suppliers).filter(pl.col("l_suppkey") == 1)
    joined = late.join(shared.select("l_orderkey"), on="l_orderkey")
    joined = joined.join(alone.select("l_orderkey"), on="l_orderkey")
    orders = t("orders").filter(pl.col("o_orderstatus") == "F")
    joined = joined.join(orders, left_on="l_orderkey", right_on="o_orderkey")
    joined = joined.join(t("supplier"), left_on="l_suppkey", right_on="s_suppkey")
    nation = t("nation").filter(pl.col("n_name") == "SAUDI ARABIA")
    joined = joined.join(nation, left_on="s_nationkey", right_on="n_nationkey")
    result = joined.group_by("s_name").agg(pl.len().alias("numwait"))
    return result.sort("numwait", "s_name", descending=[True, False]).head(100)


POLARS: dict[str, Callable[[Scan], Any]] = {
    "q1": _q1,
    "q3": _q3,
    "q5": _q5,
    "q6": _q6,
    "q9": _q9,
    "q10": _q10,
    "q18": _q18,
    "q21": _q21,
}
