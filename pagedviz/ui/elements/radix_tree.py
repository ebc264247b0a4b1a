"""The radix tree as nested lists. The style sheet lays them out from left to right; on a narrow screen, from top to
bottom.

The picture is its own text alternative: a list item is a node, and contains its pages and the nodes below it.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

Node = Mapping[str, Any]
OwnPage = Mapping[str, Any]  # seq_id, page, tokens

STYLE = """<style>
.radix { container-type: inline-size; overflow-x: auto; margin-bottom: 0.6rem; font-variant-numeric: tabular-nums;
  line-height: 1.35; --line: rgb(128 128 128 / 0.6); }
.radix ul { list-style: none; margin: 0; padding: 0 0 0 1.2rem; }
.radix > ul { padding: 0.2rem; }
.radix li { position: relative; margin: 0; padding: 0.25rem 0; }
.radix li li::before { content: ""; position: absolute; left: -0.8rem; top: 1.35rem; width: 0.8rem;
  border-top: 1px solid var(--line); }
.radix li li::after { content: ""; position: absolute; left: -0.8rem; top: 0; bottom: 0;
  border-left: 1px solid var(--line); }
.radix li li:last-child::after { bottom: auto; height: 1.35rem; }
.radix .node { display: inline-block; box-sizing: border-box; max-width: 100%; padding: 0.3rem 0.5rem;
  border: 1px dashed var(--line); border-radius: 0.5rem; }
.radix .locked { border: 2px solid currentColor; }
.radix .used { background: rgb(0 114 178 / 0.14); }
.radix .own { padding: 0.3rem 0.5rem; }
.radix .head { display: block; font-size: 0.85rem; }
.radix .page { display: inline-block; margin: 0.15rem 0.2rem 0 0; padding: 0 0.35rem; border-radius: 0.3rem;
  background: rgb(128 128 128 / 0.18); overflow-wrap: anywhere; font-size: 0.9rem; }
.radix .page small { font-size: 0.75rem; opacity: 0.85; margin-left: 0.35em; }
.radix .sr-only { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
@container (min-width: 40rem) {
  .radix li { display: flex; align-items: flex-start; }
  .radix li > ul { flex: none; padding-left: 1.8rem; }
  .radix .node { flex: none; max-width: 11.5rem; }
  .radix > ul > li > ul > li > .node:only-child { max-width: 30rem; }
  .radix li > ul > li:first-child::before { left: -1.8rem; width: 1.8rem; }
  .radix li > ul > li::before { left: -0.9rem; width: 0.9rem; }
  .radix li > ul > li::after { left: -0.9rem; }
  .radix li > ul > li:first-child::after { top: 1.35rem; }
  .radix li > ul > li:first-child:last-child::after { display: none; }
}
</style>"""


def radix_tree(nodes: Sequence[Node], own: Sequence[OwnPage], page_size: int) -> str:
    """The HTML of a tree: its `nodes`, and below them the pages in `own`, which are in no node.

    `nodes` begins with the root, and has each parent before its children.
    """
    last_used = max(node["last_used"] for node in nodes)
    below: dict[int | None, list[Node]] = {}
    for node in nodes:
        below.setdefault(node["parent"], []).append(node)

    def item(node: Node) -> str:
        children = "".join(map(item, below.get(node["node"], [])))
        used = node["last_used"] == last_used > 0
        return f"<li>{_box(node, used)}{f'<ul>{children}</ul>' if children else ''}</li>"

    label = f"The radix tree with pages of {page_size}: {len(nodes) - 1} nodes below the root"
    tree = f"<ul>{item(nodes[0])}</ul>"
    own_pages = "".join(_own_pages(seq_id, own) for seq_id in dict.fromkeys(page["seq_id"] for page in own))
    return f'{STYLE}<div class="radix" tabindex="0" role="region" aria-label="{label}">{tree}{own_pages}</div>'


def _own_pages(seq_id: str, own: Sequence[OwnPage]) -> str:
    pages = "".join(_page(page["page"], page["tokens"]) for page in own if page["seq_id"] == seq_id)
    return (
        f'<div class="own"><span class="head"><strong>{escape(seq_id)}’s own</strong>, in no node</span>{pages}</div>'
    )


def _box(node: Node, used: bool) -> str:
    root = node["parent"] is None
    kind = "node" + " locked" * (node["lock_count"] > 0) + " used" * (used and not root)
    name = "root" if root else f"node {node['node']}"
    head = [f"<strong>{name}</strong>"]
    if not root:
        head += [_locks(node["lock_count"]), f"used at {node['last_used']}"]
    if node["held_by"]:
        head.append(f"{escape(' and '.join(node['held_by']))} end{'s' * (len(node['held_by']) == 1)} here")
    if node["next_out"]:
        head.append("<strong>next to go</strong>")
    pages = "".join(_page(page, tokens) for page, tokens in _by_page(node))
    return f'<div class="{kind}"><span class="head">{" · ".join(head)}</span>{pages}</div>'


def _locks(count: int) -> str:
    return "not locked" if not count else f"{count} lock{'s' if count > 1 else ''}"


def _by_page(node: Node) -> list[tuple[int, Sequence[object]]]:
    size = len(node["tokens"]) // max(1, len(node["pages"]))
    return [(page, node["tokens"][i * size : (i + 1) * size]) for i, page in enumerate(node["pages"])]


def _page(page: int, tokens: Sequence[object]) -> str:
    text = escape(" ".join(map(str, tokens)))
    return f'<span class="page">{text}<small><span class="sr-only">in page </span>{page}</small></span> '
