"""Prints the rows of a file of samples, as JSON, as each library reads them."""

import json
import sys

import duckdb
import pandas
import polars

path = sys.argv[1]


def plain(value):
    # What pandas has for null is not equal to itself.
    return None if value is None or value != value else value


def rows_of(dictionaries):
    return [{name: plain(value) for name, value in row.items()} for row in dictionaries]


relation = duckdb.read_parquet(path)
relation_rows = [dict(zip(relation.columns, row)) for row in relation.fetchall()]
json.dump(
    {
        "pandas": rows_of(pandas.read_parquet(path).to_dict("records")),
        "polars": rows_of(polars.read_parquet(path).to_dicts()),
        "duckdb": rows_of(relation_rows),
    },
    sys.stdout,
)
