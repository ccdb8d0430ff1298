#!/usr/bin/env python3
"""How long the fuzzer takes to find faults that were mended: undoes one fix at a time, builds, and runs the default mix
of sets with fixed seeds until a finding is as the fault's would be.

  mutants.py --out DIR [--only NAME]... [--minutes 30] [--seed 1] [--cargo 'cargo']

Each patch of mutants/ undoes one fix; it is applied to the working tree, and taken back. Lines at its top say what it
undoes and which signatures are its own (`Finds: REGULAR EXPRESSION`). The tree without a patch comes first, for a
tenth of the time: a signature that it has as well proves nothing.
"""
import argparse, glob, os, re, shlex, shutil, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

def git(*args): return subprocess.run(['git', '-C', ROOT, *args], capture_output=True, text=True)

def build(args, to):
    """None, or what the compiler said; the two programs go to a folder of their own."""
    # together, so that what both depend on has the same features and is built once
    command = [*shlex.split(args.cargo), 'build', '--workspace', '--bin', 'vectile', '--example', 'emulated']
    r = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if r.returncode: return r.stderr[-2000:]
    os.makedirs(to, exist_ok=True)
    for program in ('vectile', 'examples/emulated'): shutil.copy2(os.path.join(args.target, program), to)
    return None

def fuzz(args, programs, out, minutes, until):
    """Seconds, and the signatures found."""
    t0 = time.time()
    command = [sys.executable, os.path.join(HERE, 'sql_fuzz.py'), '--bin', os.path.join(programs, 'vectile'), '--subject', os.path.join(programs, 'emulated'), '--mode', 'gpu',
               '--hang', '300', '--queries', '25', '--shrink', '0', '--seed', str(args.seed), '--minutes', str(minutes), '--out', out]
    r = subprocess.run(command + (['--until', until] if until else []), capture_output=True, text=True)
    return time.time() - t0, re.findall(r'FINDING after .*? CPU: (.*) \(', r.stdout), r.stderr

def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('--out', help='where programs and findings go; not needed with --check'); p.add_argument('--only', action='append'); p.add_argument('--minutes', type=float, default=30); p.add_argument('--seed', type=int, default=1)
    p.add_argument('--cargo', default='cargo', help='how to run cargo'); p.add_argument('--target', default=os.path.join(ROOT, 'target', 'debug')); p.add_argument('--check', action='store_true', help='only see whether patches apply')
    args = p.parse_args()
    if not args.out and not args.check: p.error('--out is needed')
    args.out = os.path.abspath(args.out or '.')
    patches = [x for x in sorted(glob.glob(os.path.join(HERE, 'mutants', '*.patch'))) if not args.only or any(o in os.path.basename(x) for o in args.only)]
    missed = 0
    if not args.check:
        error = build(args, os.path.join(args.out, 'whole', 'bin'))
        if error: sys.exit('the tree does not build:\n' + error)
        seconds, found, error = fuzz(args, os.path.join(args.out, 'whole', 'bin'), os.path.join(args.out, 'whole', 'out'), args.minutes / 10, None)
        print('without a patch: %d findings in %.0f s %s %s' % (len(found), seconds, sorted(set(found)), error[-500:]), flush=True)
    for patch in patches:
        name = os.path.splitext(os.path.basename(patch))[0]; dir = os.path.join(args.out, name)
        until = re.search(r'^Finds: (.*)$', open(patch).read(), re.M).group(1)
        if (r := git('apply', '--check', patch)).returncode: print('%s: does not apply: %s' % (name, r.stderr.strip()), flush=True); missed += 1; continue
        if args.check: print('%s: applies' % name); continue
        git('apply', patch)
        try: error = build(args, os.path.join(dir, 'bin'))
        finally: git('apply', '-R', patch)
        if error: print('%s: does not build: %s' % (name, error), flush=True); missed += 1; continue
        seconds, found, error = fuzz(args, os.path.join(dir, 'bin'), os.path.join(dir, 'out'), args.minutes, until)
        hit = [x for x in found if re.search(until, x)]
        missed += not hit
        print('%s: %s' % (name, 'found after %.0f s: %s' % (seconds, hit[0]) if hit else 'NOT found in %.0f s (%s) %s' % (seconds, sorted(set(found)), error[-500:])), flush=True)
    sys.exit(1 if missed else 0)

if __name__ == '__main__':
    main()
