"""The three computations of the demo, on a lazy Dask dataframe and in pandas.

A departure is a flight with a ``dep_time``: a cancelled flight has none. A flight is late when it
departs more than :data:`LATE_MINUTES` minutes after its schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd

#: Number of flights for each origin.
TOP = 10
LATE_MINUTES = 15

#: Sort order of the flights of an origin: column -> ascending. It has all other columns of the
#: result, so that flights that tie are equal rows, and partitions do not change the result.
RANKING = {
    "distance": False,
    "air_time": False,
    "year": True,
    "month": True,
    "day": True,
    "sched_dep_time": True,
    "carrier": True,
    "flight": True,
    "dest": True,
}


class Results(NamedTuple):
    """Result tables of the job.

    Parameters
    ----------
    longest : pandas.DataFrame
        The ten longest departures of each origin, ranked by :data:`RANKING`.
    departures : pandas.DataFrame
        Departures: a row for each day, a column for each carrier.
    delays : pandas.DataFrame
        Mean departure delay in minutes, of the same shape; NaN where nothing departed.
    hours : pandas.DataFrame
        Flights, departures and late departures of each scheduled hour.
    """

    longest: pd.DataFrame
    departures: pd.DataFrame
    delays: pd.DataFrame
    hours: pd.DataFrame


def lazy_results(flights: dd.DataFrame) -> tuple[dd.DataFrame, dd.DataFrame, dd.DataFrame]:
    """Return the collections that :func:`finish` takes, once computed.

    Computing them together reads the data once.
    """
    late = flights.assign(late=flights["dep_delay"] > LATE_MINUTES)
    # Both results are small, so one partition each avoids a shuffle.
    daily = flights.groupby(["year", "month", "day", "carrier"]).agg(
        {"dep_time": "count", "dep_delay": "mean"}, split_out=1
    )
    hours = late.groupby("hour").agg(
        {"flight": "size", "dep_time": "count", "late": "sum"}, split_out=1
    )
    return lazy_longest(flights), daily, hours


def lazy_longest(flights: dd.DataFrame) -> dd.DataFrame:
    """Return the longest departures of each origin: ten of each partition, then ten of those."""
    columns = ["origin", *RANKING]
    departed = flights[flights["dep_time"].notnull()][columns]
    longest: dd.DataFrame = departed.reduction(_longest, aggregate=_longest)
    return longest


def _longest(flights: pd.DataFrame) -> pd.DataFrame:
    ranked = flights.sort_values(["origin", *RANKING], ascending=[True, *RANKING.values()])
    return ranked.groupby("origin").head(TOP).reset_index(drop=True)


def finish(longest: pd.DataFrame, daily: pd.DataFrame, hours: pd.DataFrame) -> Results:
    """Reshape the computed collections of :func:`lazy_results` for display and saving."""
    import pandas as pd

    days = daily.reset_index()
    days["date"] = pd.to_datetime(days[["year", "month", "day"]])
    departures = days.pivot(index="date", columns="carrier", values="dep_time")
    delays = days.pivot(index="date", columns="carrier", values="dep_delay")
    hours = hours.rename(columns={"flight": "flights", "dep_time": "departures"}).sort_index()
    return Results(longest, departures.fillna(0).astype("int64"), delays, hours)


def results_in_pandas(flights: pd.DataFrame) -> Results:
    """Return the results of pandas, computed with other operations than on the cluster."""
    import pandas as pd

    departed = flights.dropna(subset=["dep_time"])[["origin", *RANKING]]
    longest = [
        rows.sort_values(list(RANKING), ascending=list(RANKING.values())).iloc[:TOP]
        for _, rows in departed.groupby("origin")
    ]
    date = pd.to_datetime(flights[["year", "month", "day"]]).rename("date")
    by_day = flights.groupby([date, "carrier"])
    by_hour = flights.groupby("hour")
    hours = pd.DataFrame(
        {
            "flights": flights["hour"].value_counts(),
            "departures": by_hour["dep_time"].count(),
            "late": (flights["dep_delay"] > LATE_MINUTES).groupby(flights["hour"]).sum(),
        }
    )
    return Results(
        longest=pd.concat(longest, ignore_index=True),
        departures=by_day["dep_time"].count().unstack(fill_value=0),
        delays=by_day["dep_delay"].mean().unstack(),
        hours=hours.sort_index(),
    )
