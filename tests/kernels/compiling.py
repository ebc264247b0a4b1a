"""Compiles kernels for an H100 (sm_90) on a machine without a GPU: the interpreter accepts more than the compiler.

Compiling needs Triton uninterpreted, so a test file runs itself as a script in a process of its own: `run_itself` runs
it, `compiled` compiles one kernel there and prints a line.
"""

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def compiled(kernel, label, arguments, num_warps=2, num_stages=3):
    """Compile a kernel and print its name, the label, how many stores it has and the size of its cubin.

    `arguments` maps each parameter to its type as Triton writes it ("*bf16", "i32"), to a constant, or to a bundle of
    these. A stride of 1 is given as the constant 1, as a launch would.
    """
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    constants = {}

    def type_of(given, *path):
        if isinstance(given, tuple) and hasattr(given, "_fields"):
            return type(given)(*(type_of(field, *path, i) for i, field in enumerate(given)))
        if isinstance(given, str):
            return given
        constants[path] = given
        return "constexpr"

    types = {name: type_of(arguments[name], i) for i, name in enumerate(kernel.arg_names)}
    source = ASTSource(kernel, types, constants)
    options = {"num_warps": num_warps, "num_stages": num_stages}
    made = triton_compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    stores = made.asm["ttir"].count("tt.store")
    print(f"{kernel.__name__} ({label}) stores {stores} cubin {len(made.asm['cubin'])} bytes")


def run_itself(module, cache):
    """Run a test module as a script that compiles; return its lines, each of a kernel that gave a cubin."""
    env = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}
    script = [sys.executable, "-m", module]
    done = subprocess.run(script, capture_output=True, text=True, env=env, cwd=PROJECT, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    made = done.stdout.splitlines()
    assert all(int(line.split()[-2]) > 1000 for line in made), made
    return made
