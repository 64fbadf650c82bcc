"""Differences of configuration files, as text."""

from __future__ import annotations

from ops.registration.revisions import FileSet, differences


def test_files_that_differ_are_compared_line_by_line() -> None:
    old = FileSet("revision 1", {"a.csv": b"x\ny\n", "same": b"1", "gone": b"z\n"})
    new = FileSet("now", {"a.csv": b"x\nw", "same": b"1"})
    assert differences(old, new) == {
        "a.csv": ("--- a.csv\trevision 1\n+++ a.csv\tnow\n@@ -1,2 +1,2 @@\n x\n-y\n+w\n\\ No newline at end of file\n"),
        "gone": "--- gone\trevision 1\n+++ /dev/null\tnow\n@@ -1 +0,0 @@\n-z\n",
    }


def test_bytes_that_are_not_utf8_and_other_ends_of_lines_are_shown() -> None:
    [text] = differences(FileSet("1", {"a": b"m\xb3\r\n"}), FileSet("2", {"a": "m³\u2028\n".encode()})).values()
    assert text.endswith("@@ -1 +1 @@\n-m\\xb3\r\n+m³\u2028\n")
