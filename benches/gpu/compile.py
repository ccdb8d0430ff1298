#!/usr/bin/env python3
"""How long kernels take to compile, and where the time goes; needs NVRTC 13 and no GPU.

    cargo run -p vectile-sql-tests --example kernels -- SSB TPCH FOLDER
    benches/gpu/compile.py FOLDER [--arch sm_90] [--runs 5] [--only ssb-q4] [--json FILE] [-- OPTION ..]

The first command writes the kernels of SSB's and TPC-H's queries, over tables that `vectile gen` left in SSB and
TPCH. VECTILE_NVRTC names the directory of libnvrtc.so.13. Prints, of each kernel, milliseconds in front end,
optimiser, ptxas and all together (medians of RUNS); what its second compilation takes, if it spills; registers,
bytes of spills and of code. Options behind `--` go to NVRTC. The first compilation of the process is left out.
"""

import argparse
import ctypes
import json
import os
import pathlib
import re
import statistics
import struct
import sys
import tempfile
import time

# as `Nvrtc::options` has them
OPTIONS = ["--std=c++17", "--device-int128", "--fmad=false", "--device-as-default-execution-space"]
OPTIONS += ["--ptxas-options=-v", "--no-cache"]
MOST_REGISTERS = "--define-macro=MOST_REGISTERS"
PHASES = ["CUDA C++ Frontend", "NVVM Optimizer", "PTX Translation"]


class Compiler:
    def __init__(self):
        folder = pathlib.Path(os.environ.get("VECTILE_NVRTC", "/usr/local/cuda/lib64"))
        for builtins in folder.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins))
        self.library = ctypes.CDLL(str(folder / "libnvrtc.so.13"))

    def text(self, program, what):
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        out = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{what}")(program, out)
        return out.raw

    def compile(self, source, options):
        """Milliseconds, the log and the cubin."""
        program, options = ctypes.c_void_p(), [option.encode() for option in options]
        create, compile_program = self.library.nvrtcCreateProgram, self.library.nvrtcCompileProgram
        assert create(ctypes.byref(program), source, b"kernel.cu", 0, None, None) == 0
        start = time.perf_counter()
        result = compile_program(program, len(options), (ctypes.c_char_p * len(options))(*options))
        took = (time.perf_counter() - start) * 1e3
        log = self.text(program, "ProgramLog").decode(errors="replace")
        if result != 0:
            sys.exit(f"NVRTC error {result}\n{log}")
        cubin = self.text(program, "CUBIN")
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return took, log, cubin


def code_bytes(cubin):
    """Bytes of the sections of an ELF file whose names start with `.text`."""
    (sections,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, sections + index * size) for index in range(count)]
    names = headers[names][4]
    return sum(header[5] for header in headers if cubin.startswith(b".text", names + header[0]))


def used(log):
    """Registers, and bytes of spills."""
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    return int(re.search(r"Used (\d+) registers", log)[1]), sum(map(int, spills))


def measure(compiler, source, options, runs):
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(runs):
            table = pathlib.Path(folder) / str(number)
            took, log, cubin = compiler.compile(source, [*options, f"--time={table}"])
            rows = dict(re.findall(r"^[^,]*, ([^,]*), (\d+)", table.read_text(), re.M))
            times.append([*(float(rows.get(phase, 0)) for phase in PHASES), took])
    front, optimiser, ptxas, whole = map(statistics.median, zip(*times))
    registers, spills = used(log)
    again = 0.0
    if spills:
        again, log, second = compiler.compile(source, [*options, MOST_REGISTERS])
        if used(log)[1] < spills:
            (registers, spills), cubin = used(log), second
    result = {"front": front, "optimiser": optimiser, "ptxas": ptxas, "whole": whole, "again": again}
    return result | {"registers": registers, "spills": spills, "code": code_bytes(cubin)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("more", nargs="*")
    arguments = parser.parse_args()
    options = [f"--gpu-architecture={arguments.arch}", *OPTIONS, *arguments.more]
    compiler, results = Compiler(), {}
    compiler.compile(b'extern "C" __global__ void scan() {}', options)
    columns = ["front", "optimiser", "ptxas", "whole", "again", "registers", "spills", "code"]
    print(f"{'kernel':<16}" + "".join(f"{column:>10}" for column in columns))
    for file in sorted(arguments.folder.glob(f"{arguments.only}*.cu")):
        results[file.stem] = result = measure(compiler, file.read_bytes(), options, arguments.runs)
        print(f"{file.stem:<16}" + "".join(f"{result[column]:>10.0f}" for column in columns), flush=True)
    if not results:
        sys.exit(f"no kernels {arguments.only}*.cu in {arguments.folder}")
    whole = [result["whole"] for result in results.values()]
    both = [result["whole"] + result["again"] for result in results.values()]
    for name, times in [("one after the other", both), ("at the same time", whole)]:
        most = f"most {max(times):.0f}, {sum(time > 400 for time in times)} above 400"
        print(f"compilations {name}: median {statistics.median(times):.0f} ms, {most}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
