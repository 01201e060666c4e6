"""The table of scoring requests with MLflow's answer and ours, and what asks both.

`cases/` holds the table as data, one file per theme; `docs/mlflow-compatibility.md` is written from it by
`python -m support.scoring.document`.
"""
