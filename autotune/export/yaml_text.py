"""YAML documents below a comment head."""

from collections.abc import Iterable
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key, as Kubernetes files are usually written, and writes no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Never without indentation."""
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        """Equal values are written out each time: a person edits one of them."""
        return True


def yaml_text(head: Iterable[str], *documents: Any) -> str:
    """The head's lines, then the documents in their own key order."""
    texts = [yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000) for document in documents]
    return "\n".join(head) + "\n" + "---\n".join(texts)
