"""uv's words for people, condensed to the clause that a user reads. The texts are what uv printed."""

import pytest

from steelyard.packages.uv_reasons import disk_is_full, reason

NO_SOLUTION = "error: No solution found when resolving dependencies\n  cause:"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"Using Python 3.11.7 environment at: v\n{NO_SOLUTION} Because there is no version of "
            "scikit-learn==99.0 and you require scikit-learn==99.0, we can conclude that your requirements are "
            "unsatisfiable.",
            "no version of scikit-learn==99.0 exists",
        ),
        (
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because there are no versions of numpy==99 and "
            "you require numpy==99, we can conclude that your\n      requirements are unsatisfiable.",
            "no version of numpy==99 exists",
        ),
        (
            f"{NO_SOLUTION} Because zzq was not found in the package registry and you require zzq==1.0, we can "
            "conclude that your requirements are unsatisfiable.",
            "the package index has no package zzq",
        ),
        (
            f"{NO_SOLUTION} Because pandas==2.1.4 depends on numpy{{python_full_version < '3.12'}}>=1.23.2,<2 "
            "and you require numpy==2.2.0, we can conclude that your requirements and pandas==2.1.4 are incompatible.\n"
            "         And because you require pandas==2.1.4, we can conclude that your requirements are unsatisfiable.",
            "pandas==2.1.4 depends on numpy>=1.23.2,<2 and the model requires numpy==2.2.0",
        ),
        (
            f"{NO_SOLUTION} you require numpy<1.25 and numpy>=1.26, which are incompatible",
            "the model requires numpy<1.25 and numpy>=1.26, which are incompatible",
        ),
        (
            f"{NO_SOLUTION} Because tensorflow==1.15.0 has no wheels with a matching Python ABI tag (e.g., "
            "`cp311`) and you require tensorflow==1.15, we can conclude that your requirements are unsatisfiable.\n\n"
            "hint: You require CPython 3.11",
            "tensorflow==1.15.0 has no build for this Python and machine",
        ),
        (
            "Resolved 1 package in 406ms\n   Building numpy==1.16.0\nerror: Failed to build `numpy==1.16.0`\n"
            "  cause: The build backend returned an error\n  cause: Call to `x` failed (exit status: 1)\n\n"
            "         [stderr]\n         error: there is no version of cc",
            "numpy==1.16.0 has no ready build for this Python and machine, and building it from source failed",
        ),
        (
            "error: Request failed after 3 retries in 7.1s\n  cause: Failed to fetch: https://host.invalid/simple/idna/\n"
            "  cause: client error (Connect)\n  cause: dns error\n  cause: failed to lookup address information",
            "the package index cannot be reached and uv's cache does not hold everything",
        ),
        (
            "error: Failed to fetch: `https://host.invalid/simple/idna/`\n  cause: HTTP status client error "
            "(403 Forbidden) for url (https://host.invalid/simple/idna/)",
            "the package index answered 403 Forbidden",
        ),
        (
            f"{NO_SOLUTION} Because idna was not found in the cache and you require idna==3.4, we can conclude "
            "that your requirements are unsatisfiable.\n\nhint: Packages were unavailable because the network was off",
            "uv's cache does not hold idna and the network is switched off",
        ),
        ("error: Hash mismatch for `six==1.16.0`\n\nExpected:\n  sha256:00", "the hash of six==1.16.0 is not the one"),
        ("error: something new\n", "something new"),
        ("", "uv gave no reason"),
        ("error: " + "long " * 200, "long long"),
    ],
)
def test_the_reason_is_one_short_clause(text, expected):
    clause = reason(text.splitlines())
    assert clause.startswith(expected)
    assert len(clause) <= 301
    assert not clause.endswith(".")


def test_a_full_disk_is_known_by_what_the_system_said():
    assert disk_is_full(["  cause: failed to copy file from a to b: No space left on device (os error 28)"])
    assert not disk_is_full(["error: something else"])
