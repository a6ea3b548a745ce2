"""The kinds of sums that sites can send, one record each, and the triangles of symmetric matrices that they are kept in."""

from ghofl.statistics.statistic import INT64_MAX, STATISTICS, Statistic, statistics_to_store

__all__ = ["INT64_MAX", "STATISTICS", "Statistic", "statistics_to_store"]
