"""Every link in a document leads to a file, and to a heading of it."""

from __future__ import annotations

import pytest

from tests.edge import documents
from tests.edge.documents import ALL_DOCUMENTS, ROOT, anchors, is_relative, links


@pytest.mark.parametrize("document", ALL_DOCUMENTS)
def test_every_link_leads_to_a_file_and_to_a_heading(document: str) -> None:
    for link in filter(is_relative, links(document)):
        name, _, anchor = link.partition("#")
        target = ((ROOT / document).parent / name).resolve() if name else ROOT / document
        assert target.is_relative_to(ROOT), link
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target.relative_to(ROOT).as_posix()), link


def test_links_of_every_kind_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    [a](b.md), [c](<d.md#e>), ![f](g.png "h"), [i][j], `[k](l.md)`
[j]: m.md#n
# One heading
# One heading
## The [third](o.md): `x`, and more
```sh
# no heading
[p](q.md)
```
"""
    monkeypatch.setattr(documents, "text_of", lambda _: text)
    assert links("any") == ["b.md", "d.md#e", "g.png", "o.md", "m.md#n"]
    assert anchors("any") == {"one-heading", "one-heading-1", "the-third-x-and-more"}
    assert [is_relative(link) for link in ("a.md", "#b", "https://c", "mailto:d", "//e")] == [
        *(True, True, False, False, False)
    ]
