"""The table itself: a module per theme, each with a TITLE and its CASES, in the order of the document."""

from support.scoring.cases import (
    answers,
    columns,
    csv,
    formats,
    fractions,
    media,
    nested,
    others,
    params,
    signatures,
    tensors,
    whole,
)

THEMES = (formats, media, columns, whole, fractions, others, csv, tensors, nested, params, signatures, answers)
