"""The stage's modules are joined in the order that their import lines ask for, and what does not fit is refused."""

import re

import pytest

from pagedviz.ui import stage
from pagedviz.ui.stage.bundle import bundle, ordered

THREE = {
    "main.js": 'import { twice } from "./parts/twice.js";\nexport default function () { return twice(3); }\n',
    "parts/twice.js": 'import { two as factor } from "./two.js";\nexport const twice = (n) => factor * n;\n',
    "parts/two.js": "export const two = 2;\nconst twice = null; // a name of its own\n",
}


def test_a_module_comes_after_those_that_it_imports():
    assert ordered(THREE, "main.js") == ["parts/two.js", "parts/twice.js", "main.js"]


def test_modules_are_joined_into_one_and_keep_their_names_to_themselves():
    assert bundle(THREE, "main.js") == "\n".join(
        [
            "const modules = {};",
            'modules["parts/two.js"] = (() => {',
            "const two = 2;",
            "const twice = null; // a name of its own",
            "return { two };",
            "})();",
            'modules["parts/twice.js"] = (() => {',
            'const { two: factor } = modules["parts/two.js"];',
            "const twice = (n) => factor * n;",
            "return { twice };",
            "})();",
            'const { twice } = modules["parts/twice.js"];',
            "export default function () { return twice(3); }",
            "",
        ]
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("parts/two.js", 'import { twice } from "./twice.js";\nexport const two = twice;\n', "run in a circle: parts/"),
        ("parts/two.js", 'import { x } from "../gone.js";\nexport const two = x;\n', "two.js imports gone.js, which"),
        ("parts/two.js", "const two = 2;\n", "parts/twice.js imports two from parts/two.js, which does not export it"),
        ("main.js", 'import { twice } from "./parts/twice.js";\n', "twice.js and does not use it"),
        ("main.js", 'import all from "./parts/twice.js";\n', "not of the form"),
        ("main.js", "import { twice } from './parts/twice.js';\n", "not of the form"),
    ],
)
def test_an_import_that_does_not_fit_is_refused(name, text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        bundle(THREE | {name: text}, "main.js")


def test_each_module_of_the_stage_is_used():
    modules = stage.modules()
    assert set(ordered(modules, "stage.js")) == set(modules)
    assert bundle(modules, "stage.js").count("export ") == 1
