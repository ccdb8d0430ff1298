"""Sets of generated tables: a fact table with dimensions, as source files and as Vectile files."""
import os, random, re, shutil, subprocess
import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from columns import INTS, PER, Col, ColumnMaker, bounds, decimals, null_mask, random_type, runs, sample, with_nulls
from running import STATS, Result, kernels_of, run_process


class Table:
    def __init__(self, name): self.name, self.cols, self.files, self.dims, self.rows = name, [], [], [], 0

ROWS = [(0, 3), (1, 3), (2, 2), (100, 4), (1023, 3), (1024, 4), (1025, 4), (3000, 18), (6000, 10), (20000, 20), (50000, 10), (130000, 5), (300000, 3)]
BLOCKS = ['gpu_for', 'gpu_dfor', 'gpu_rfor', 'gpu_star']
PINS = {'int': ['ffor', 'delta', 'rle', 'dict', 'plain', 'sparse', *BLOCKS],
        'float': ['alp', 'alp_rd', 'dict', 'rle', 'plain', 'ffor', 'delta', 'sparse', *BLOCKS],
        'text': ['dict', 'fsst', 'onpair', 'plain', 'dict'], 'bin': ['dict', 'fsst', 'onpair', 'plain']}

def pick_rows(rng, biggest):
    n = rng.choices([r for r, _ in ROWS], [w for _, w in ROWS])[0]
    if n > 1025: n = int(n * (.5 + rng.random()))
    return min(n, biggest)

class Set:
    """A fact table with dimensions, as source files and as Vectile files."""
    def __init__(self, dir, seed, args):
        self.dir, self.seed, self.args = dir, seed, args
        self.rng, self.g = random.Random(seed), np.random.default_rng(seed)
        rng = self.rng
        self.fmt = rng.choice(['parquet', 'parquet', 'arrow'])
        self.tables = []
        dims = rng.choices([0, 1, 2, 3, 4], [12, 28, 28, 20, 12])[0]
        for i in range(dims): self.dimension(i)
        self.fact()
        self.settings = self.draw_settings()
    def draw_settings(self):
        rng = self.rng; s = []  # the subject runs with its own defaults
        if rng.random() < .5: s.append("SET datafusion.execution.target_partitions = %d" % rng.choice([1, 2, 3, 4, 8]))
        if rng.random() < .3: s.append("SET datafusion.execution.batch_size = %d" % rng.choice([64, 1000, 1024, 8191]))
        if rng.random() < .15: s.append("SET vectile.pushdown_filters = false")
        if self.args.mode == 'gpu':
            s += ["SET vectile.gpu = '%s'" % rng.choice(['on', 'on', 'on', 'auto']), kernels_of(self.seed, self.args)]
            s.append("--gpu-build-from-rows=%d" % rng.choice([0, 0, 0, 1000, 1 << 20]))
            if rng.random() < .15: s.append("--no-key-table-cache")
            if rng.random() < .15: s.append("SET vectile.gpu.memory_limit = '%s'" % rng.choice(['20M', '5M', '60M']))
            if rng.random() < .15: s.append("SET vectile.gpu.host_memory_limit = '%s'" % rng.choice(['0', '1M', '20M']))
            if rng.random() < .15: s.append("SET vectile.gpu.max_build_rows = %d" % rng.choice([0, 10, 1000, 5000]))
        else: s += ["SET vectile.gpu = 'off'", "SET vectile.fuse = %s" % rng.choice(['true', 'false'])]
        return s
    def key_type(self, n):
        rng = self.rng
        kinds = ['int32', 'int32', 'int64', 'int64', 'uint32', 'uint64', 'text', 'text', 'dict', 'date', 'ts', 'int16', 'uint16', 'dec', 'time']
        if n <= 100: kinds += ['int8', 'uint8', 'bool', 'float']
        k = rng.choice(kinds)
        if k in ('int16', 'uint16') and n > 30000: k = 'int32'
        if k == 'time' and n > 80000: k = 'int32'
        return k
    def dimension(self, i):
        rng, g = self.rng, self.g
        t = Table('d%d' % i)
        n = rng.choice([0, 1, 2, 10, 40, 100, 300, 1000, 2556, 5000, 30000]) if rng.random() < .92 else rng.choice([60000, 60000, 150000])
        kind = self.key_type(n); k = np.arange(n, dtype=np.int64)
        layout = rng.choice(['dense', 'dense', 'dense1', 'negative', 'offset', 'sparse', 'thousands', 'ends'])
        lo, hi = {'int8': (-128, 127), 'uint8': (0, 255), 'int16': (-2**15, 2**15 - 1), 'uint16': (0, 2**16 - 1), 'int32': (-2**31, 2**31 - 1),
                  'uint32': (0, 2**32 - 1), 'int64': (-2**63, 2**63 - 1), 'uint64': (0, 2**63 - 1), 'date': (-5000, 90000), 'ts': (0, 2 * 10**9),
                  'dec': (-10**9 + 1, 10**9 - 1), 'time': (0, 86399), 'bool': (0, 1), 'float': (-1000, 1000)}.get(kind, (0, 2**31 - 1))
        if layout == 'dense1': k = k + 1
        elif layout == 'negative': k = k - n // 2
        elif layout == 'offset': k = k + min(10**6, max(0, hi - n)) if kind not in ('int8', 'uint8') else k
        elif layout == 'thousands': k = k * 1000
        elif layout == 'sparse' and n: k = np.unique(g.integers(lo, hi, n)); g.shuffle(k)
        elif layout == 'ends' and n: k = np.where(k % 2 == 0, lo + k // 2, hi - k // 2)
        k = np.unique(k[(k >= lo) & (k <= hi)])
        if rng.random() < .7: g.shuffle(k)
        dup = rng.random() < .15
        if dup and len(k): k = np.concatenate([k, k[:max(1, len(k) // rng.choice([1, 5, 1000]))]])
        n = len(k)
        mask = (g.random(n) < .05) if rng.random() < .2 and n else None
        ty = {'text': pa.string(), 'dict': pa.dictionary(pa.int32(), pa.string()), 'date': pa.date32(), 'ts': pa.timestamp('s'),
              'dec': pa.decimal128(12, 2), 'time': pa.time32('s' if self.fmt == 'arrow' else 'ms'), 'bool': pa.bool_(), 'float': pa.float64()}.get(kind) or INTS[kind]
        if kind == 'ts': ty = pa.timestamp(rng.choice(['ms', 'us', 's', 'ns']))
        per = PER[ty.unit] if kind == 'ts' else 1
        t.key = (kind, ty, k, per)
        def build(v, m):
            if kind in ('text', 'dict'):
                a = pa.array(['k%d' % x for x in v.tolist()], type=pa.string(), mask=m)
                return a.dictionary_encode() if kind == 'dict' else a
            if kind == 'dec': return decimals(v, v >> 63, ty, m)
            if kind == 'float': return pa.array(v.astype(float), mask=m)
            if kind == 'bool': return pa.array(v.astype(bool), mask=m)
            return with_nulls(v * per, ty, m)
        t.build = build
        nfiles = rng.choices([1, 2, 3], [80, 15, 5])[0]
        makers = []
        for j in range(rng.randint(1, 5)):
            ft = random_type(rng, self.fmt)
            if pa.types.is_list(ft): ft = pa.string()
            if rng.random() < .4: ft = rng.choice([pa.string(), pa.string(), pa.int32(), pa.int16()])
            makers.append(ColumnMaker('a%d' % j, ft, rng, g, calm=rng.random() < .7))
        cut = [n * p // nfiles for p in range(nfiles + 1)]
        parts = []
        for p in range(nfiles):
            m = cut[p + 1] - cut[p]
            arrays = [build(k[cut[p]:cut[p + 1]], None if mask is None else mask[cut[p]:cut[p + 1]])] + [mk.make(m) for mk in makers]
            parts.append(pa.table(arrays, names=['k'] + [mk.col.name for mk in makers]))
        kc = Col('k', ty); kc.key_of = t.name
        self.finish(t, [kc] + [m.col for m in makers], parts)
        t.dup = dup
    def fact(self):
        rng, g = self.rng, self.g
        t = Table('f')
        nfiles = rng.choices([1, 2, 3, 4], [50, 25, 15, 10])[0]
        biggest = 300000 if self.args.mode == 'gpu' or rng.random() < .3 else 60000
        sizes = [pick_rows(rng, biggest // (1 if p == 0 else 2)) for p in range(nfiles)]
        makers = [ColumnMaker('c%d' % j if rng.random() < .97 else 'C o%dü' % j, random_type(rng, self.fmt), rng, g, calm=rng.random() < .4) for j in range(rng.randint(3, 9))]
        links = []
        for d in self.tables:
            kind, ty, k, per = d.key
            ft = ty
            if kind in INTS and rng.random() < .3:
                fit = [x for x in INTS if len(k) == 0 or (bounds(INTS[x])[0] <= int(k.min()) and int(k.max()) <= min(2**63 - 1, bounds(INTS[x])[1]))]
                if fit: ft = INTS[rng.choice(fit)]
            if kind in ('text', 'dict') and rng.random() < .4: ft = rng.choice([pa.string(), pa.dictionary(pa.int32(), pa.string())])
            links.append((d, ft, rng.choice([0, 0, .05, .5, 1]), rng.choice(['uniform', 'skew', 'runs', 'sorted', 'const']), rng.random() < .3))
            if rng.random() < .12: links.append(links[-1])        # two keys to one dimension
        parts = []
        cols = None
        for n in sizes:
            arrays, names, cs = [], [], []
            if True:
                arrays.append(pa.array(np.arange(n, dtype=np.int64) + sum(len(p) for p in parts))); names.append('id'); c = Col('id', pa.int64()); cs.append(c)
            for j, (d, ft, miss, how, nulls) in enumerate(links):
                kind, ty, k, per = d.key
                pool = k if len(k) else np.array([1], np.int64)
                q = len(pool)
                if how == 'uniform': at = g.integers(0, q, n)
                elif how == 'skew': at = (g.random(n)**4 * q).astype(int)
                elif how == 'runs': at = runs(n, g, rng.choice([3, 100]), lambda z: g.integers(0, q, z))
                elif how == 'sorted': at = np.sort(g.integers(0, q, n))
                else: at = np.full(n, rng.randrange(q))
                v = pool[at]
                if miss and n:
                    m = g.random(n) < miss
                    lo, hi = (bounds(ft) if kind in INTS else (int(pool.min()) - 5, int(pool.max()) + 5))
                    hi = min(hi, 2**63 - 1)
                    if kind in INTS and rng.random() < .7: lo, hi = max(lo, int(pool.min()) - 40), min(hi, int(pool.max()) + 40)
                    if kind == 'time': lo, hi = 0, 86399
                    if kind == 'bool': lo, hi = 0, 1
                    v = np.where(m, g.integers(lo, hi, n, endpoint=True) if hi > lo else v, v)
                mask = null_mask(n, rng, g, None if rng.random() < .5 else 'random') if nulls else None
                if kind in INTS: a = with_nulls(v, ft, mask)
                elif kind in ('text', 'dict'):
                    u, inv = np.unique(v, return_inverse=True)
                    dict_ = pa.DictionaryArray.from_arrays(pa.array(inv.reshape(-1).astype(np.int32), mask=mask), pa.array(['k%d' % x for x in u.tolist()], type=pa.string()))
                    a = dict_ if pa.types.is_dictionary(ft) else dict_.cast(pa.string())
                else: a = d.build(v, mask)
                arrays.append(a); names.append('fk%d' % j); c = Col('fk%d' % j, ft); c.links = d; cs.append(c)
            for m in makers:
                if pa.types.is_list(m.t): arrays.append(pa.array([[1, None, x] if x % 3 else None for x in range(n)], type=m.t))
                else: arrays.append(m.make(n))
                names.append(m.col.name); cs.append(m.col)
            parts.append(pa.table(arrays, names=names)); cols = cs
        t.links = [(names[1 + j], l[0]) for j, l in enumerate(links)]
        self.finish(t, cols, parts)
    def finish(self, t, cols, parts):
        rng = self.rng
        for i, c in enumerate(cols):
            sample(c, [p.column(i).combine_chunks() if p.column(i).num_chunks != 1 else p.column(i).chunk(0) for p in parts], rng)
        t.cols, t.parts, t.rows = cols, parts, sum(len(p) for p in parts)
        t.layout = []
        # COPY of Parquet has string views, convert strings: files of both are no table together
        t.command = rng.random() < .2
        for p in parts:
            rg = rng.choice([262144, 262144, 65536, 16384, 5000, 3000, 2048, 1024, 700])
            if len(p) > 60000 and rg < 3000: rg = 5000
            if t.command: rg = 262144
            if len(p) / rg > 80: rg = max(rg, len(p) // 80)
            pins = {}
            if rng.random() < .5:
                for c in cols:
                    base = {'bin': 'bin', 'text': 'text', 'float': 'float', 'nested': None}.get(c.cls, 'int')
                    if base and rng.random() < .4: pins[c.name] = rng.choice(PINS[base])
            t.layout.append((rg, pins))
        self.tables.append(t)
    # files
    def write(self, dir=None):
        dir = dir or self.dir
        src, vec = os.path.join(dir, 'src'), os.path.join(dir, 'vec')
        shutil.rmtree(dir, ignore_errors=True); os.makedirs(src); os.makedirs(vec)
        script = []; plan = []
        for t in self.tables:
            os.makedirs(os.path.join(src, t.name)); os.makedirs(os.path.join(vec, t.name))
            for i, p in enumerate(t.parts):
                name = os.path.join(src, t.name, 'p%d.%s' % (i, self.fmt))
                write_source(p, name, self.fmt, 20000)
                plan.append((name, os.path.join(vec, t.name, 'p%d.vectile' % i)) + t.layout[i] + (getattr(t, 'command', False),))
        self.src, self.vec = src, vec
        return self.convert(plan)
    def convert(self, plan):
        """Returns a list of problems."""
        problems, rest = [], []
        todo = [(a, b, rg, p) for a, b, rg, p, command in plan if not command]
        if len(todo) < len(plan):                         # through the convert command
            for a, b, rg, pins in [(a, b, rg, p) for a, b, rg, p, command in plan if command]:
                for attempt in range(20):
                    r = subprocess.run([self.args.bin, 'convert', a, b, '--quiet'] + [x for c, e in pins.items() for x in ('--encoding', '%s=%s' % (c, e))], capture_output=True, text=True, errors='replace')
                    if r.returncode == 0: STATS['converted by command'] += 1; break
                    if pins and 'ncoding' in r.stderr:
                        STATS['pins refused'] += 1
                        bad = [c for c in pins if re.search(r'\b%s\b' % re.escape(c), r.stderr)]
                        for c in (bad or list(pins)): pins.pop(c)
                    else: problems.append((a, b, rg, pins, Result('error' if r.returncode in (1, 2) else 'crash', '', r.stderr, 0, 0))); break
        for attempt in range(60):
            if not todo: break
            s = ["SET datafusion.execution.target_partitions = 1", "SET vectile.gpu = 'off'"]
            lines = []
            for a, b, rg, pins in todo:
                o = ["row_group_rows %d" % rg] + ["'encoding.%s' '%s'" % (c, e) for c, e in pins.items()]
                lines.append("SELECT '@@%s' AS m;\nCOPY (SELECT * FROM '%s') TO '%s' STORED AS VECTILE OPTIONS (%s);\n" % (b, a, b, ', '.join(o)))
            r = run_process(self.args.bin, [], ';\n'.join(s) + ';\n' + ''.join(lines), self.dir, 120)
            done = re.findall(r'@@(\S+)', r.out)
            if r.status == 'ok': todo = []; break
            k = len(done) - 1
            a, b, rg, pins = todo[max(k, 0)]
            if os.path.exists(b): os.remove(b)
            m = re.search(r'column (\S+?):? .*?encoding|encoding (\w+) for these values|pinned|encoding', r.err)
            if r.status == 'error' and pins and ('ncoding' in r.err):
                bad = [c for c in pins if re.search(r'\b%s\b' % re.escape(c), r.err)]
                for c in (bad or list(pins)): pins.pop(c)
                STATS['pins refused'] += 1
                todo = [(a, b, rg, pins)] + todo[k + 1:]
            else:
                problems.append((a, b, rg, pins, r)); todo = todo[k + 1:]
        # some by the convert command
        return problems
    def views(self, base):
        return [(t.name, os.path.join(base, t.name) + '/') for t in self.tables]
    def subject(self, settings=None):
        """The subject's tables, and the statements before its queries."""
        settings = settings or self.settings
        if not self.args.memory: return self.views(self.vec), settings
        return [('v_' + n, p) for n, p in self.views(self.vec)], settings + ['SET vectile.memory_tables = true'] + [x for t in self.tables for x in self.in_memory(t)]
    def in_memory(self, t):
        """Statements that copy a table to memory: row groups as they are, or rows that wait for others of a row group, or both."""
        rng = random.Random('%s %s' % (self.seed, t.name))
        rows = 'INSERT INTO %s SELECT * FROM v_%s' % (t.name, t.name)
        kind = rng.choice(['whole', 'rows', 'parts']) if t.cols else 'rows'
        if kind == 'rows': return ['CREATE TABLE %s AS SELECT * FROM v_%s' % (t.name, t.name)]
        create = ['CREATE TABLE %s AS SELECT * FROM v_%s LIMIT 0' % (t.name, t.name)]
        if kind == 'whole': return create + [rows]
        column = '"%s"' % rng.choice(t.cols).name
        return create + [rows + ' WHERE %s IS NULL' % column, 'SELECT count(*) FROM %s' % t.name, rows + ' WHERE %s IS NOT NULL' % column]

def write_source(table, name, fmt, chunk):
    if fmt == 'parquet':
        pq.write_table(table, name, row_group_size=chunk, compression='zstd' if len(table) > 5000 else 'none')
    else:
        with pa.OSFile(name, 'wb') as f, ipc.new_file(f, table.schema) as w:
            if len(table): w.write_table(table)
            else: w.write_batch(pa.RecordBatch.from_arrays([pa.array([], type=c.type) if not pa.types.is_dictionary(c.type) else pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), pa.array([], pa.string())) for c in table.schema], schema=table.schema))
