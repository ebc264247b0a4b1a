"""Joins the stage's modules into the one that Streamlit takes, in the order that their own import lines ask for."""

import re
from collections.abc import Mapping
from posixpath import dirname, normpath

IMPORT = re.compile(r'^import \{([^{}]*)\} from "(\.[^"]*)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?:const|class|function) (\w+)", re.MULTILINE)


def imports(name: str, text: str) -> dict[str, list[str]]:
    """The modules that a module imports, each with the names it takes, as "its name" or "its name as another"."""
    return {
        normpath(f"{dirname(name) or '.'}/{path}"): [taken.strip() for taken in names.split(",") if taken.strip()]
        for names, path in IMPORT.findall(text)
    }


def ordered(modules: Mapping[str, str], entry: str) -> list[str]:
    """The modules that `entry` needs, each after those that it imports; `entry` is the last."""
    order: list[str] = []

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            raise ValueError(f"the imports run in a circle: {' -> '.join([*path[path.index(name) :], name])}")
        if name not in modules:
            raise ValueError(f"{path[-1]} imports {name}, which is no module")
        if name not in order:
            for other in imports(name, modules[name]):
                visit(other, [*path, name])
            order.append(name)

    visit(entry, [])
    return order


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """One module with the `export default` of `entry`. `modules` maps paths such as "draw/tables.js" to their text.

    Each module but `entry` becomes a function of its own that returns what it exports, so two modules may use one name
    for two things.
    """
    exports = {name: EXPORT.findall(modules[name]) for name in ordered(modules, entry)}
    out = ["const modules = {};"]
    for name, exported in exports.items():
        body = IMPORT.sub("", modules[name])
        if re.search(r"^import ", body, re.MULTILINE):
            raise ValueError(f'{name} has an import that is not of the form `import {{ name }} from "./module.js";`')
        for other, taken in imports(name, modules[name]).items():
            for there, _, here in (each.partition(" as ") for each in taken):
                if there not in exports[other]:
                    raise ValueError(f"{name} imports {there} from {other}, which does not export it")
                if not re.search(rf"\b{here or there}\b", body):
                    raise ValueError(f"{name} imports {here or there} from {other} and does not use it")
            body = f'const {{ {", ".join(taken).replace(" as ", ": ")} }} = modules["{other}"];\n{body}'
        body = re.sub(r"^export (?!default)", "", body, flags=re.MULTILINE)
        scoped = f'modules["{name}"] = (() => {{\n{body}return {{ {", ".join(exported)} }};\n}})();'
        out.append(body if name == entry else scoped)
    return "\n".join(out)
