import pytest

from steelyard.errors import UnsupportedMediaType
from steelyard.protocols.media import Media, media_of


@pytest.mark.parametrize(
    "header",
    [
        b"application/json",
        b"Application/JSON",
        b'application/json; charset="utf-8"',
        b"application/json;charset=UTF8",
        b"application/json; charset=UTF-8",
        b"application/json; boundary=x",
        b"application/vnd.api+json",
    ],
)
def test_json_is_recognised_however_it_is_written(header):
    assert media_of(header, b"{}") is Media.JSON


def test_csv_is_recognised():
    assert media_of(b"Text/CSV; header=present", b"a\n1") is Media.CSV


@pytest.mark.parametrize(
    ("header", "media"),
    [
        (b"application/vnd.apache.arrow.stream", Media.ARROW),
        (b"Application/Vnd.Apache.Parquet", Media.PARQUET),
        (b"application/x-parquet; a=b", Media.PARQUET),
    ],
)
def test_tables_in_binary_form_are_recognised(header, media):
    assert media_of(header, b"") is media
    assert media.is_columnar
    assert not Media.JSON.is_columnar


def test_a_missing_type_is_json_when_the_body_looks_like_it():
    assert media_of(None, b'  {"a": 1}') is Media.JSON
    with pytest.raises(UnsupportedMediaType, match="Content-Type"):
        media_of(None, b"a,b\n1,2")


@pytest.mark.parametrize(
    "header", [b"text/plain", b"application/json; charset=latin-1", b"\xff\xfe", b";;", b"application/xml"]
)
def test_anything_else_is_415(header):
    with pytest.raises(UnsupportedMediaType):
        media_of(header, b"{}")
