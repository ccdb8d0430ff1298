"""Runs statements in processes of their own."""
import collections, os, random, re, resource, signal, subprocess, time


STATS = collections.Counter()
REASONS = collections.Counter()
PEAK = [0]
BIG = []
Result = collections.namedtuple('Result', 'status out err wall rss')

def run_process(bin, tables, script, dir, hang, more=()):
    """status: ok, error, crash, hang; hang is seconds without output."""
    path = os.path.join(dir, 'script%d.sql' % os.getpid())
    with open(path, 'w') as f: f.write(script)
    cmd = [bin, 'sql', '--format', 'csv', '-f', path, *more]
    for n, p in tables: cmd += ['-t', '%s=%s' % (n, p)]
    so, se = os.path.join(dir, 'stdout'), os.path.join(dir, 'stderr')
    env = dict(os.environ, RUST_BACKTRACE='1')
    t0 = time.time()
    with open(so, 'wb') as o, open(se, 'wb') as e:
        p = subprocess.Popen(cmd, stdout=o, stderr=e, stdin=subprocess.DEVNULL, env=env)
        size, since, status, code, ru = -1, time.time(), None, None, None
        nap = .005
        while True:
            pid, code, ru = os.wait4(p.pid, os.WNOHANG)
            if pid: break
            time.sleep(nap); nap = min(.1, nap * 1.5)
            s = os.path.getsize(so)
            if s != size: size, since = s, time.time()
            elif time.time() - since > hang:
                os.kill(p.pid, signal.SIGKILL); _, code, ru = os.wait4(p.pid, 0); status = 'hang'; break
        p.returncode = code
    out = open(so, errors='replace').read(); err = open(se, errors='replace').read()
    rss = ru.ru_maxrss / 1024 / 1024 if ru else 0            # GiB
    # until it runs its program, a child counts with what the fuzzer itself has taken
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 / 1024
    if rss > max(4, own): BIG.append((rss, script))
    PEAK[0] = max(PEAK[0], rss)
    if status is None:
        if os.WIFSIGNALED(code): status = 'crash'; err += '\nsignal %d' % os.WTERMSIG(code)
        elif 'panicked at' in err: status = 'crash'
        elif os.WEXITSTATUS(code) == 0: status = 'ok'
        else: status = 'error' if os.WEXITSTATUS(code) in (1, 2) else 'crash'
    return Result(status, out, err, time.time() - t0, rss)

KINDS = [('panic', r'panicked at|signal \d+'), ('resources', r'Resources exhausted|memory'), ('div0', r'[Dd]ivide by zero|division by zero'),
         ('overflow', r'[Oo]verflow|too large to store|out of range|Invalid time|is too small to store|convert timestamp|outside|not in range'),
         ('cast', r"[Cc]ast error|Can't cast|Cannot cast|Parser error|[Pp]arse"), ('internal', r'Internal error|internal error|bug in'),
         ('notimpl', r'not implemented|NotImplemented|not supported|nsupported'), ('plan', r'planning|Schema error|coerce|No function matches|SchemaError|No field|SQL error|Invalid function'),
         ('arrow', r'Arrow error|Compute error|Invalid argument')]
ROWERR = {'div0', 'overflow', 'cast'}

def kind_of(err):
    text = '\n'.join(l for l in err.splitlines() if l.strip())
    for k, p in KINDS:
        if re.search(p, text): return k
    return 'other'

def shorten(err, n=400):
    m = re.search(r'error: .*', err, re.S)
    t = (m.group(0) if m else err).strip()
    if 'panicked at' in err:
        i = err.index('panicked at'); t = err[max(0, i - 60):i + 500]
    return t[:n]

def run_many(bin, tables, settings, stmts, dir, hang, more=()):
    """settings: statements before all others, and arguments of the program, which begin with `--`. stmts: (id, sql, what) with what in copy, show, or ('copy', statements before it). Returns id -> (status, payload)."""
    out = {}
    todo, flags = list(stmts), [s for s in settings if s.startswith('--')]
    res = os.path.join(dir, 'res'); os.makedirs(res, exist_ok=True)
    while todo:
        head = ''.join(s + ';\n' for s in settings if s not in flags)
        body = []
        for id, sql, what in todo:
            body.append("SELECT '@@%s' AS m;\n" % id)
            if isinstance(what, tuple): what, before = what; body += [x + ';\n' for x in before]
            if what == 'copy':
                f = os.path.join(res, id + '.parquet')
                if os.path.exists(f): os.remove(f)
                body.append("COPY (%s) TO '%s' STORED AS PARQUET;\n" % (sql, f))
            else: body.append(sql + ';\n')
        r = run_process(bin, tables, head + ''.join(body) + "SELECT '@@end' AS m;\n", dir, hang, [*flags, *more])
        STATS['processes'] += 1
        if r.rss > 4 and r.rss > STATS['max rss']: STATS['max rss'] = int(r.rss)
        seen = [(m.group(1), m.start(), m.end()) for m in re.finditer(r'^@@(\w+)$', r.out, re.M)]
        ids = [s[0] for s in seen]
        for j, (id, a, b) in enumerate(seen):
            if id == 'end': continue
            if j + 1 < len(seen):
                end = seen[j + 1][1]
                text = r.out[b:end]
                out[id] = ('ok', text)
        if r.status == 'ok':
            if 'end' not in ids:
                for id, _, _ in todo: out.setdefault(id, ('error', 'no output: ' + r.err[-300:]))
            return out
        if not ids:                                   # nothing ran: opening tables, or a syntax error
            if len(todo) == 1: out[todo[0][0]] = (r.status, r.err); return out
            for s in todo: out.update(run_many(bin, tables, settings, [s], dir, hang, more))
            return out
        last = ids[-1] if ids[-1] != 'end' else None
        if last is None: return out
        out[last] = (r.status, r.err)
        k = [s[0] for s in todo].index(last)
        todo = todo[k + 1:]
        if len(out) and STATS is not None: STATS['restarts'] += 1
    return out

def kernels_of(seed, args):
    """The statement that says which kernels run the queries of a set, by its seed. The interpreter needs no compiler."""
    return "SET vectile.gpu.kernels = '%s'" % (args.kernels or random.Random('kernels %d' % seed).choice(['interpreted', 'interpreted', 'generated']))

def mk(*p):
    d = os.path.join(*p); os.makedirs(d, exist_ok=True); return d
