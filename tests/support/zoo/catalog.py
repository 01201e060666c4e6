"""Which models the zoo has, by family, known without importing any of their libraries."""

from __future__ import annotations

from support.zoo import (
    agents,
    catboost_trees,
    lightgbm_trees,
    networks,
    own_code,
    scikit,
    statistics,
    text,
    xgboost_trees,
)

FAMILIES = {
    module.__name__.rpartition(".")[2]: module
    for module in (scikit, xgboost_trees, lightgbm_trees, catboost_trees, networks, text, statistics, own_code, agents)
}
FAMILY_OF = {name: family for family, module in FAMILIES.items() for name in module.MODELS}
