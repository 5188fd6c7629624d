"""Bodies written and read without botocore's serializer and parser say what botocore says."""

from typing import Any
from xml.sax.saxutils import escape

import botocore.session
import pytest
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from hypothesis import given
from hypothesis import strategies as st

from expunge.tasks.erasers.s3_bodies import delete_body, read_body
from expunge.tasks.erasers.s3_keys import goes_singly

_MODEL = botocore.session.get_session().get_service_model("s3")
_NAMESPACES = ["", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"', ' xmlns="urn:other"']

texts = st.text(min_size=0, max_size=12).filter(lambda text: not goes_singly(text))
keys = texts.filter(bool)
objects = st.fixed_dictionaries({"Key": keys}, optional={"VersionId": texts})


def by_botocore(operation: str, body: bytes) -> dict[str, Any]:
    parser = create_parser("rest-xml")
    answer = {"status_code": 200, "headers": {}, "body": body}
    parsed: dict[str, Any] = parser.parse(answer, _MODEL.operation_model(operation).output_shape)
    del parsed["ResponseMetadata"]
    return parsed


def element(name: str, inside: str) -> str:
    return f"<{name}>{inside}</{name}>" if inside else f"<{name}/>"


def elements(item: dict[str, str]) -> str:
    return "".join(element(name, escape(text, {"\r": "&#xD;"})) for name, text in item.items())


@given(st.lists(objects, min_size=1, max_size=5))
def test_the_body_of_a_delete_reads_as_botocores_own(asked: list[dict[str, str]]) -> None:
    operation = _MODEL.operation_model("DeleteObjects")
    serializer = create_serializer("rest-xml")
    parameters = {"Bucket": "b", "Delete": {"Objects": asked, "Quiet": False}}
    theirs = serializer.serialize_to_request(parameters, operation)["body"]

    def read(body: bytes) -> Any:
        from xml.etree import ElementTree

        root = ElementTree.fromstring(body.decode())
        space = "{http://s3.amazonaws.com/doc/2006-03-01/}"
        named = [
            (each.findtext(f"{space}Key"), each.findtext(f"{space}VersionId"))
            for each in root.findall(f"{space}Object")
        ]
        return named, root.findtext(f"{space}Quiet")

    assert read(delete_body(asked)) == read(theirs)
    assert read(delete_body(asked))[0] == [(each["Key"], each.get("VersionId")) for each in asked]


flags = st.sampled_from(["true", "false", "True", ""])
version_items = st.fixed_dictionaries({"Key": texts}, optional={"VersionId": texts, "IsLatest": flags, "ETag": texts})
documents = st.one_of(
    st.tuples(
        st.just(("ListObjectsV2", "ListBucketResult")),
        st.fixed_dictionaries({}, optional={"IsTruncated": flags, "EncodingType": st.just("url"), "Name": texts}),
        st.lists(
            st.tuples(st.just("Contents"), st.fixed_dictionaries({"Key": texts}, optional={"Size": st.just("3")}))
        ),
    ),
    st.tuples(
        st.just(("ListObjectVersions", "ListVersionsResult")),
        st.fixed_dictionaries(
            {},
            optional={
                "IsTruncated": flags,
                "EncodingType": st.just("url"),
                "NextKeyMarker": texts,
                "NextVersionIdMarker": texts,
            },
        ),
        st.lists(st.tuples(st.sampled_from(["Version", "DeleteMarker"]), version_items)),
    ),
    st.tuples(
        st.just(("DeleteObjects", "DeleteResult")),
        st.just({}),
        st.lists(
            st.one_of(
                st.tuples(
                    st.just("Deleted"),
                    st.fixed_dictionaries(
                        {},
                        optional={
                            "Key": texts,
                            "VersionId": texts,
                            "DeleteMarker": flags,
                            "DeleteMarkerVersionId": texts,
                        },
                    ),
                ),
                st.tuples(
                    st.just("Error"),
                    st.fixed_dictionaries({}, optional={"Key": texts, "VersionId": texts, "Code": texts}),
                ),
            )
        ),
    ),
)
_USED = {
    "IsTruncated", "EncodingType", "NextKeyMarker", "NextVersionIdMarker", "Contents", "Versions", "DeleteMarkers",
    "Deleted", "Errors",
}  # fmt: skip
_USED_OF_ITEMS = {"Key", "VersionId", "DeleteMarker", "DeleteMarkerVersionId", "Code"}


def used(parsed: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [{field: item[field] for field in item if field in _USED_OF_ITEMS} for item in value]
        if isinstance(value, list)
        else value
        for name, value in parsed.items()
        if name in _USED
    }


@given(documents, st.sampled_from(_NAMESPACES), st.booleans())
def test_an_answer_reads_as_botocore_reads_it(document: Any, namespace: str, declared: bool) -> None:
    (operation, root), scalars, items = document
    inside = elements(scalars) + "".join(element(name, elements(item)) for name, item in items)
    head = '<?xml version="1.0"?>' if declared else ""
    body = f"{head}<{root}{namespace}>{inside}</{root}>".encode()

    read = read_body(operation, body)

    assert read is not None
    assert used(read) == used(by_botocore(operation, body))


@pytest.mark.parametrize(
    "body",
    [
        b"<ListBucketResult><Contents><Key>a</Key>",
        b'<ListBucketResult xmlns="urn:a"><Contents xmlns="urn:b"><Key>a</Key></Contents></ListBucketResult>',
        b'<s:ListBucketResult xmlns:s="urn:a"><Contents><Key>a</Key></Contents></s:ListBucketResult>',
        b"<ListBucketResult><Contents><Key>a</Key><Key>b</Key></Contents></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>false</IsTruncated><IsTruncated>true</IsTruncated></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>\xff</Key></Contents></ListBucketResult>",
        b"",
    ],
    ids=["cut off", "two namespaces", "prefixed", "key twice", "end twice", "not UTF-8", "empty"],
)
def test_what_is_not_plain_is_left_to_botocore(body: bytes) -> None:
    """A listing that seems empty because its names were not understood would make "absent" of every object."""
    assert read_body("ListObjectsV2", body) is None


def test_other_operations_are_left_to_botocore() -> None:
    assert read_body("GetBucketVersioning", b"<VersioningConfiguration/>") is None
