"""Values on their way through files: `convert`, `COPY` and partitions. What pyarrow reads, or wrote, says what is right."""
import collections, csv, datetime, glob, os, random, shutil, subprocess
import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from columns import quote
from comparing import norm_col, type_name
from running import STATS, mk, run_many, shorten

ODD = ['a', 'b', 'x/y', 'x=y', '100%', '%2F', 'a b', ' a', 'é', '日本', 'a:b', "o'neil", '"q"', 'x\\y', '*', 'a[1]', '?x', '#h', 'a.b', '.', '..', '007', '5', '1e3', 'true', 'null', 'NULL', '2020-01-01', 'tab\tt', '+', '&', '{z}', '~']

class Files:
    """What a finding keeps."""
    def __init__(self, worker, name):
        self.dir = os.path.join(worker.work, name); shutil.rmtree(self.dir, ignore_errors=True)
        self.src, self.vec = mk(self.dir, 'src'), mk(self.dir, 'vec'); self.worker = worker; self.did = []
        self.gpu, self.settings, self.known = [], [], []
    def convert(self, *args):
        """None, or what the command said."""
        args = [self.worker.args.bin, 'convert', *args, '--quiet']
        self.did.append(' '.join(args))
        r = subprocess.run(args, capture_output=True, text=True, errors='replace', timeout=300)
        STATS['conversions'] += 1
        if r.returncode == 0: return None
        return ('crash: ' if r.returncode not in (1, 2) or 'panicked' in r.stderr else 'error: ') + shorten(r.stderr)
    def sql(self, sql, tables=()):
        """The rows, or None and an error."""
        self.did.append(sql); STATS['conversions'] += 1
        out = os.path.join(mk(self.dir, 'q', 'res'), 'x.parquet')
        r = run_many(self.worker.args.bin, list(tables), ["SET vectile.gpu = 'off'"], [('x', sql, 'copy')], os.path.join(self.dir, 'q'), self.worker.args.hang)['x']
        if r[0] != 'ok': return None, r[0] + ': ' + shorten(r[1])
        return (pq.ParquetFile(out).read() if os.path.exists(out) else None), None
    def finding(self, sig, seed, text):
        self.worker.sigs[sig] += 1
        self.worker.say('FINDING', sig, 'set', seed, text[:400])
        if self.worker.sigs[sig] <= self.worker.args.keep: self.worker.finding_of_text(sig, seed, text + '\n\nsteps:\n' + '\n'.join(self.did), self)

# ---------------------------------------------------------------- conversions

def floats(rng, g, n, type):
    base = rng.choice([3.0, 1.5, -0.5, 1e10])
    a = rng.choice([lambda: np.full(n, base), lambda: np.round(g.random(n) * 100, 1), lambda: g.integers(-5, 5, n) + 0.5, lambda: np.sort(g.normal(0, 100, n))])()
    odd = rng.choice([None, [np.nan], [np.nan], [np.nan, np.inf, -np.inf], [-0.0, 0.0], [np.nan, -0.0]])
    if odd and n: at = g.random(n) < rng.choice([.01, .3, .9]); at[rng.randrange(n)] = True; a[at] = np.array(odd)[g.integers(0, len(odd), int(at.sum()))]
    return pa.array(a.astype(np.float32 if type == pa.float32() else np.float64), type, from_pandas=False, mask=(g.random(n) < .1) if rng.random() < .3 else None)

def texts(rng, g, n):
    prefix = rng.choice(['', 'a', 'x' * 63, 'y' * 64, 'z' * 130, 'é' * 31 + 'a', '日' * 21 + 'b', '\U0010ffff' * 16])
    pool = [prefix + x for x in rng.sample(['', 'a', 'b', 'é', '日', '\U0010ffff', 'zz', '~'], rng.randint(1, 5))]
    return pa.array([pool[i] for i in g.integers(0, len(pool), n)], pa.string(), mask=(g.random(n) < .2) if rng.random() < .3 else None)

def source_table(rng, g):
    n = rng.choice([1, 2, 3, 3, 10, 1024, 1500, 3000])
    columns = {'i': pa.array(np.arange(n))}
    for j in range(rng.randint(1, 4)):
        k = rng.choice(['f64', 'f64', 'f64', 'f32', 'text', 'int', 'date', 'bool', 'dec'])
        mask = (g.random(n) < .2) if rng.random() < .3 else None
        if k in ('f64', 'f32'): c = floats(rng, g, n, pa.float64() if k == 'f64' else pa.float32())
        elif k == 'text': c = texts(rng, g, n)
        elif k == 'int': c = pa.array(np.full(n, 7) if rng.random() < .4 else g.integers(-2**62, 2**62, n), mask=mask)
        elif k == 'date': c = pa.array(g.integers(0, 20000, n).astype(np.int32), mask=mask).view(pa.date32())
        elif k == 'bool': c = pa.array(g.integers(0, 2, n).astype(bool), mask=mask)
        else: c = pa.array(g.integers(-10**6, 10**6, n), mask=mask).cast(pa.decimal128(25, 0))
        columns['%s%d' % (k, j)] = c
    return pa.table(columns)

def condition(rng, table):
    """A condition in SQL, and for which rows it is true. Floats are in DataFusion's order: NaN is equal to itself and above all others."""
    name = rng.choice(table.column_names[1:]); c = table[name]
    values = [v for v in c.to_pylist() if v is not None]
    if rng.random() < .1 or not values or not (pa.types.is_floating(c.type) or pa.types.is_integer(c.type) or pa.types.is_string(c.type)):
        return '"%s" IS NOT NULL' % name, [v is not None for v in c.to_pylist()]
    pick = rng.choice(values)
    if pa.types.is_floating(c.type):
        pick = rng.choice([100.25, 2.75, -3.25, float(pick)])
        if pick != pick or pick in (0.0, float('inf'), float('-inf')) or c.type == pa.float32(): pick = 100.25
    text = quote(pick) if isinstance(pick, str) else "CAST('%r' AS DOUBLE)" % pick if isinstance(pick, float) else '(%d)' % pick
    op = rng.choice(['<', '<=', '>', '>', '>=', '=', '<>'])
    key = (lambda v: (v != v, 0 if v != v else v)) if pa.types.is_floating(c.type) else (lambda v: v.encode()) if isinstance(pick, str) else (lambda v: v)
    test = {'<': lambda a, b: a < b, '<=': lambda a, b: a <= b, '>': lambda a, b: a > b, '>=': lambda a, b: a >= b, '=': lambda a, b: a == b, '<>': lambda a, b: a != b}[op]
    return '"%s" %s %s' % (name, op, text), [v is not None and test(key(v), key(pick)) for v in c.to_pylist()]

def unlike(expected, got):
    """None, or the first column that differs; rows in their order."""
    if got is None: return None if expected.num_rows == 0 else 'no rows, not %d' % expected.num_rows
    if got.num_rows != expected.num_rows: return '%d rows, not %d' % (got.num_rows, expected.num_rows)
    if got.column_names != expected.column_names: return 'columns %s, not %s' % (got.column_names, expected.column_names)
    for name in expected.column_names:
        a, b = expected[name], got[name]
        if type_name(a.type) != type_name(b.type): return '%s is %s, not %s' % (name, b.type, a.type)
        x, y = norm_col(a), norm_col(b)
        if not x.equals(y):
            at = [i for i, (p, q) in enumerate(zip(x.to_pylist(), y.to_pylist())) if p != q]
            return '%s: row %d is %r, not %r (%d rows differ)' % (name, at[0], b[at[0]].as_py(), a[at[0]].as_py(), len(at))
    return None

def read(path):
    return pq.ParquetFile(path).read() if path.endswith('.parquet') else ipc.open_file(pa.memory_map(path)).read_all()

def in_order(rows):
    """The rows by `i`, as several threads read them. Text is no view: not every pyarrow sorts those."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return rows.cast(pa.schema([f.with_type(plain.get(f.type, f.type)) for f in rows.schema])).sort_by('i')

def write(table, path, rng):
    if path.endswith('.arrow'):
        with ipc.new_file(path, table.schema) as w: w.write_table(table, max_chunksize=rng.choice([2, 1000, 10**6]))
    else: pq.write_table(table, path, row_group_size=rng.choice([2, 1000, 10**6]), write_page_index=rng.random() < .5, use_dictionary=rng.random() < .7)

def run_convert(worker, seed):
    rng, g = random.Random(seed), np.random.default_rng(seed)
    for _ in range(4):
        f = Files(worker, 'convert')
        if rng.random() < .25: through_csv(f, rng, seed); continue
        table = source_table(rng, g)
        path = os.path.join(f.src, 'a.' + rng.choice(['parquet', 'parquet', 'arrow'])); write(table, path, rng)
        chain = rng.choice([['vectile'], ['vectile', 'parquet'], ['vectile', 'parquet', 'vectile'], ['parquet'], ['parquet', 'vectile'], ['arrow', 'vectile'], ['vectile', 'arrow']])
        at = path
        for i, kind in enumerate(chain):                   # the last step may take a part of the rows
            to = os.path.join(f.vec, '%d.%s' % (i, kind)); args = []
            if i + 1 == len(chain) and rng.random() < .5:
                sql, keep = condition(rng, table); table = table.filter(pa.array(keep)); args = ['--where', sql]
            if kind == 'vectile' and rng.random() < .3:    # by SQL
                rows, error = f.sql("SELECT * FROM '%s'%s" % (at, ' WHERE ' + args[1] if args else ''))
                if rows is not None: rows = in_order(rows)
                problem = error or unlike(table, rows)
                if problem: f.finding('sql over ' + os.path.splitext(at)[1], seed, problem); return
            problem = f.convert(at, to, *args)
            if not problem and kind != 'vectile': problem = unlike(table, read(to))
            if not problem and kind == 'vectile':
                back = os.path.join(f.vec, '%d-back.arrow' % i)
                problem = f.convert(to, back) or unlike(table, read(back))
            if problem: f.finding('convert %s to %s%s' % (os.path.splitext(at)[1], kind, ' where' if args else ''), seed, problem); return
            at = to

def through_csv(f, rng, seed):
    """Text comes back as it was, or is an error."""
    n = rng.choice([3, 2000])
    kinds = {'int': lambda: str(rng.randint(-99, 99)), 'long': lambda: str(rng.randint(2**53, 2**63 - 1)), 'beyond': lambda: str(rng.choice([5, 2**63, 2**64 - 1])), 'zeros': lambda: rng.choice(['01234', '7', '00']),
             'plus': lambda: rng.choice(['+5', '6']), 'date': lambda: '2024-%02d-%02d' % (rng.randint(1, 12), rng.randint(1, 28)), 'baddate': lambda: rng.choice(['2024-01-05', '2024-13-01', '2024-02-30']),
             'text': lambda: rng.choice(['a', 'b,c', 'd "e"', 'x\ny', 'é']), 'mixed': lambda: rng.choice(['1', '2', 'x'])}
    names = rng.sample(list(kinds), rng.randint(1, 4))
    rows = [[kinds[k]() for k in names] for _ in range(n)]
    a, b, c = os.path.join(f.src, 'a.csv'), os.path.join(f.vec, 'a.vectile'), os.path.join(f.vec, 'b.csv')
    with open(a, 'w', newline='') as w: out = csv.writer(w); out.writerow(names); out.writerows(rows)
    problem = f.convert(a, b) or f.convert(b, c)
    if not problem:
        back = list(csv.reader(open(c, newline='')))
        if back[0] != names or len(back) - 1 != n: problem = '%d rows of %s' % (len(back) - 1, back[0])
        for x, y in zip(rows, back[1:]):
            if x != y: problem = '%r came back as %r' % (x, y); break
    if problem: f.finding('csv of ' + '-'.join(sorted(names)), seed, problem)

# ---------------------------------------------------------------- partitions

def as_text(v):
    if v is None: return None
    if isinstance(v, bool): return str(v).lower()
    return v.isoformat() if isinstance(v, datetime.date) else str(v)

def run_partitions(worker, seed):
    rng, g = random.Random(seed), np.random.default_rng(seed)
    f = Files(worker, 'partitions')
    n = rng.choice([5, 50, 500]); columns = {'i': pa.array(np.arange(n)), 'x': pa.array(np.round(g.random(n), 2))}
    keys = rng.sample(['p', 'q'], rng.choice([1, 1, 2]))
    for k in keys:
        mask = (g.random(n) < .3) if rng.random() < .6 else None
        kind = rng.choice(['text', 'text', 'text', 'int', 'date', 'bool'])
        if kind == 'text':
            pool = rng.sample(ODD, rng.randint(1, 6)) + [''] * (rng.random() < .4)
            columns[k] = pa.array([pool[i] for i in g.integers(0, len(pool), n)], pa.string(), mask=mask)
        elif kind == 'int': columns[k] = pa.array(g.integers(-2, 3, n), mask=mask)
        elif kind == 'date': columns[k] = pa.array(g.integers(-1, 3, n).astype(np.int32), mask=mask).view(pa.date32())
        else: columns[k] = pa.array(g.integers(0, 2, n).astype(bool), mask=mask)
    table = pa.table(columns); a = os.path.join(f.src, 'a.parquet'); write(table, a, rng)
    tree = os.path.join(f.vec, 'tree') + '/'
    copy = "COPY (SELECT * FROM '%s') TO '%s' STORED AS VECTILE PARTITIONED BY (%s)" % (a, tree, ', '.join(keys))
    f.did.append(copy)
    r = run_many(worker.args.bin, [], ["SET vectile.gpu = 'off'"], [('x', copy, 'show')], mk(f.dir, 'w'), worker.args.hang)['x']
    if r[0] != 'ok': f.finding('partitions written', seed, shorten(r[1])); return
    names = ['i', 'x'] + sorted(keys)
    rows = lambda t: collections.Counter(tuple(as_text(v) if k in keys else v for k, v in zip(names, r)) for r in zip(*[t[k].to_pylist() for k in names])) if t is not None else collections.Counter()
    def check(what, got, error, expected=None):
        expected = rows(table) if expected is None else expected
        problem = error
        if not problem:
            try: found = rows(got)
            except KeyError as e: problem = 'no column %s in %s' % (e, got.column_names)
            else:
                if found != expected: problem = 'not right: %s; missing: %s' % (list(found - expected)[:3], list(expected - found)[:3])
        if problem: f.finding(what, seed, '%s\ndirectories: %s' % (problem, sorted(os.path.relpath(x, tree) for x in glob.glob(tree + '**', recursive=True) if os.path.isdir(x))[:12]))
        return not problem
    got, error = f.sql('SELECT * FROM x', [('x', tree)])
    if not check('partitions read', got, error): return
    k = rng.choice(keys); v = rng.choice(table[k].to_pylist()); t = as_text(v)
    where = '"%s" IS NULL' % k if t is None else '%s = %s' % ('CAST("%s" AS VARCHAR)' % k if rng.random() < .5 or not isinstance(v, str) else '"%s"' % k, quote(t))
    got, error = f.sql('SELECT * FROM x WHERE ' + where, [('x', tree)])
    if not check('partitions filtered', got, error, rows(table.filter(pa.array([as_text(w) == t for w in table[k].to_pylist()])))): return
    back = os.path.join(f.vec, 'back.arrow')
    error = f.convert(tree, back)
    check('partitions converted', None if error else read(back), error)
