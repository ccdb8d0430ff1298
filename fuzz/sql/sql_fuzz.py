#!/usr/bin/env python3
"""Differential SQL fuzzer for Vectile: the same binary over the source files (Parquet or Arrow IPC, plain
DataFusion, vectile.gpu=off) is the oracle; over .vectile files made of them it is the subject.

  sql_fuzz.py --bin PATH --seed N [--tables K] [--queries Q] --minutes M --mode cpu|gpu --out DIR [--workers N]

--tables is the number of table sets per worker (0: until time is up), --queries the queries per set.
OUT/stats.json and OUT/summary.txt have counts; OUT/findings/* a report and a self-contained repro.py each.
Standard library, numpy and pyarrow only.
"""
import argparse, base64, collections, copy, datetime, glob, json, math, os, random, re, resource, shutil
import signal, subprocess, sys, time, traceback
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.ipc as ipc

# ---------------------------------------------------------------- expressions

class N:
    """A node: a format with {} for each child; cls is its SQL class; absfmt is for error bounds of float sums."""
    __slots__ = ('fmt', 'kids', 'cls', 'absfmt')
    def __init__(self, fmt, *kids, cls='', absfmt=None):
        self.fmt, self.kids, self.cls, self.absfmt = fmt, list(kids), cls, absfmt
    def sql(self, mag=False):
        f = self.absfmt if mag and self.absfmt else self.fmt
        if not self.kids:
            return f
        out, i = [], 0
        parts = f.split('{}')
        for j, p in enumerate(parts):
            out.append(p)
            if j < len(parts) - 1:
                out.append(self.kids[j].sql(mag))
        return ''.join(out)
    def walk(self, path=()):
        yield path, self
        for i, k in enumerate(self.kids):
            yield from k.walk(path + (i,))

def lit(s, cls=''):
    return N(s.replace('{}', '{ }'), cls=cls)

# ---------------------------------------------------------------- columns

INTS = {'int8': pa.int8(), 'int16': pa.int16(), 'int32': pa.int32(), 'int64': pa.int64(),
        'uint8': pa.uint8(), 'uint16': pa.uint16(), 'uint32': pa.uint32(), 'uint64': pa.uint64()}
UNIT = {'s': 'Second', 'ms': 'Millisecond', 'us': 'Microsecond', 'ns': 'Nanosecond'}
PER = {'s': 1, 'ms': 1000, 'us': 10**6, 'ns': 10**9}
WORDS = ['alpha', 'beta', 'gamma', 'delta', 'PROMO BRUSHED', 'STANDARD', 'ünïcode', 'ASIA', 'EUROPE', 'AMERICA',
         'a', '', 'Zz', 'naïve', '日本語', 'x_y', '100%', "o'neil", 'tab\tsep', 'MFGR#12', 'MFGR#1221', '🚀go', 'back\\slash']

def bounds(t):
    if t == pa.bool_(): return 0, 1
    i = np.iinfo(t.to_pandas_dtype()); return int(i.min), int(i.max)

class Col:
    """A column's type and what is known of its values."""
    def __init__(self, name, t):
        self.name, self.t = name, t
        self.samples = []            # SQL literals near the data
        self.wild = False            # floats that are huge; dates that are extreme
        self.nan = False
        self.ref = None
        self.key_of = None
        self.distinct = 10**9
        self.magnitude = 0
    @property
    def cls(self):
        t = self.t
        if pa.types.is_dictionary(t): t = t.value_type
        for c, f in (('bool', pa.types.is_boolean), ('int', pa.types.is_integer), ('float', pa.types.is_floating),
                     ('dec', pa.types.is_decimal), ('date', pa.types.is_date), ('ts', pa.types.is_timestamp),
                     ('time', pa.types.is_time), ('dur', pa.types.is_duration)):
            if f(t): return c
        if pa.types.is_string(t) or pa.types.is_large_string(t): return 'text'
        if pa.types.is_binary(t) or pa.types.is_fixed_size_binary(t): return 'bin'
        return 'nested'
    def at(self, alias):
        c = copy.copy(self)
        c.ref = alias + '."' + self.name + '"'
        return c

def arrow_cast_name(t):
    if pa.types.is_timestamp(t):
        return 'Timestamp(%s, %s)' % (UNIT[t.unit], 'None' if t.tz is None else 'Some("%s")' % t.tz)
    if pa.types.is_time32(t): return 'Time32(%s)' % UNIT[t.unit]
    if pa.types.is_time64(t): return 'Time64(%s)' % UNIT[t.unit]
    if pa.types.is_duration(t): return 'Duration(%s)' % UNIT[t.unit]
    return {'date32[day]': 'Date32'}.get(str(t))

def quote(s):
    return "'" + s.replace("'", "''") + "'"

def literal(t, v, rng):
    """SQL for the raw value v (integers for dates and times) of Arrow type t."""
    if pa.types.is_dictionary(t): t = t.value_type
    if v is None: return 'NULL'
    if pa.types.is_boolean(t): return 'true' if v else 'false'
    if pa.types.is_integer(t):
        v = int(v)
        if v > 2**64 - 1 or v < -2**63: v = max(min(v, 2**64 - 1), -2**63 + 1)
        return str(v) if v >= 0 else '(%d)' % v
    if pa.types.is_floating(t):
        f = float(v)
        name = 'REAL' if t == pa.float32() and rng.random() < .5 else 'DOUBLE'
        if math.isnan(f) or math.isinf(f):
            return "CAST('%s' AS %s)" % ('NaN' if math.isnan(f) else ('inf' if f > 0 else '-inf'), name)
        if abs(f) < 1e15 and abs(f) > 1e-4 and rng.random() < .6: return '(%s)' % repr(f)
        return "CAST('%r' AS %s)" % (f, name)
    if pa.types.is_decimal(t):
        s = ('-' if v < 0 else '') + str(abs(v)).rjust(t.scale + 1, '0')
        s = s[:len(s) - t.scale] + ('.' + s[-t.scale:] if t.scale else '')
        if rng.random() < .3 and abs(v) < 10**14: return '(%s)' % s
        return "CAST('%s' AS DECIMAL(%d,%d))" % (s, max(len(str(abs(v))), t.scale + 1, min(t.precision, 38)), t.scale)
    if pa.types.is_date(t):
        if -700000 < v < 2900000 and rng.random() < .9:
            return "DATE '%s'" % (datetime.date(1970, 1, 1) + datetime.timedelta(days=int(v))).isoformat()
        return "arrow_cast(arrow_cast(%d, 'Int32'), 'Date32')" % v
    if pa.types.is_time32(t):
        return "arrow_cast(arrow_cast(%d, 'Int32'), '%s')" % (v, arrow_cast_name(t))
    if pa.types.is_timestamp(t) and t.tz is None and rng.random() < .3 and abs(v) < 4 * 10**9 * PER[t.unit]:
        d = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=int(v) // PER[t.unit])
        return "TIMESTAMP '%s'" % d.isoformat(' ')
    if pa.types.is_timestamp(t) or pa.types.is_time64(t) or pa.types.is_duration(t):
        v = max(min(int(v), 2**63 - 1), -2**63 + 1)
        return "arrow_cast(%d, '%s')" % (v, arrow_cast_name(t))
    if isinstance(v, bytes): return "X'%s'" % v.hex()
    return quote(v)

def null_mask(n, rng, g, how=None):
    how = how or rng.choices(['none', 'all', 'random', 'runs', 'vector'], [50, 3, 30, 12, 5])[0]
    if how == 'none' or n == 0: return None
    if how == 'all': return np.ones(n, bool)
    if how == 'random': return g.random(n) < rng.choice([.002, .05, .5, .95])
    if how == 'vector':                       # whole vectors of 1024 are null
        return np.repeat(g.random(n // 1024 + 1) < .4, 1024)[:n]
    return runs(n, g, rng.choice([3, 40, 700]), lambda k: g.random(k) < .3)

def runs(n, g, length, values):
    k = max(1, int(n / length * 1.5) + 2)
    lens = g.geometric(1.0 / length, k)
    v = np.repeat(values(k), lens)
    while len(v) < n: v = np.concatenate([v, v])
    return v[:n]

INT_MODES = ['const', 'sorted', 'gaps', 'walk', 'runs', 'few', 'narrow', 'wide', 'extremes', 'outliers', 'nearmax', 'nearmin', 'steps', 'twovalues']

def raw_ints(n, lo, hi, rng, g, mode=None, base=None):
    """n integers in lo..=hi as int64 or uint64."""
    mode = mode or rng.choice(INT_MODES)
    span = hi - lo
    wide = lambda k: (g.integers(lo, hi, k, dtype=np.uint64, endpoint=True) if hi >= 2**63 else
                      g.integers(lo, hi, k, dtype=np.int64, endpoint=True))
    if n == 0: return wide(0)
    b = base if base is not None else rng.choice([0, 0, 1, lo, hi // 2, hi - hi // 3, int(rng.random() * 1000)])
    b = max(lo, min(hi, b))
    w = min(span, 2**rng.choice([1, 3, 4, 7, 8, 11, 14, 16, 20, 31]))
    dt = np.uint64 if hi >= 2**63 else np.int64
    def clip(a):                               # python-safe: arithmetic was in float-free int64 offsets from b
        return a
    def off(o):                                # b + offsets, folded into the range
        o = np.asarray(o, dtype=np.int64)
        room = hi - b
        if room <= 0: return np.full(len(o), hi, dtype=dt)
        o = np.abs(o) % min(room + 1, 2**63 - 1)
        return (o.astype(np.uint64) + np.uint64(b)).astype(dt) if hi >= 2**63 else (o + np.int64(b))
    if mode == 'const': return off(np.zeros(n, np.int64))
    if mode == 'sorted': return off(np.arange(n))
    if mode == 'gaps': return off(np.cumsum(g.integers(0, rng.choice([2, 5, 100, 10**4]), n)))
    if mode == 'walk':
        b = max(lo, min(hi, lo + span // 2))
        return off(np.cumsum(g.integers(-5, 6, n)) + min(10**6, span // 4))
    if mode == 'runs': return runs(n, g, rng.choice([2, 10, 200, 3000]), lambda k: off(g.integers(0, w, k, endpoint=True)))
    if mode == 'few':
        pool = wide(rng.choice([2, 3, 5, 17, 64, 256, 257, 3000]))
        return pool[(g.random(n)**rng.choice([1, 3]) * len(pool)).astype(int)]
    if mode == 'twovalues': return np.array([lo, hi], dtype=dt)[g.integers(0, 2, n)]
    if mode == 'narrow': return off(g.integers(0, w, n, endpoint=True))
    if mode == 'wide': return wide(n)
    if mode == 'extremes':
        pool = np.array([x for x in (lo, lo + 1, hi, hi - 1, 0, 1, -1, hi // 2) if lo <= x <= hi], dtype=dt)
        return pool[g.integers(0, len(pool), n)]
    if mode == 'outliers':
        a = off(g.integers(0, w, n, endpoint=True)); at = g.random(n) < rng.choice([.0005, .005, .03])
        a[at] = wide(int(at.sum())); return a
    if mode == 'nearmax': b = hi - min(span, 1000); return off(g.integers(0, min(span, 1000), n, endpoint=True))
    if mode == 'nearmin': b = lo; return off(g.integers(0, min(span, 1000), n, endpoint=True))
    if mode == 'steps': return off(np.arange(n) * rng.choice([2, 7, 100]) + g.integers(0, 2, n))
    raise ValueError(mode)

def with_nulls(a, t, mask):
    """numpy integers to an Arrow array of an integer-like type."""
    if pa.types.is_boolean(t): return pa.array(a.astype(bool), mask=mask)
    if pa.types.is_integer(t): return pa.array(a.astype(t.to_pandas_dtype()), type=t, mask=mask)
    w = np.int32 if t.bit_width == 32 else np.int64
    return pa.array(a.astype(w), mask=mask).view(t)

def decimals(lo64, hi64, t, mask):
    n = len(lo64)
    words = np.empty((n, 2), dtype=np.int64)
    words[:, 0] = lo64.view(np.int64) if lo64.dtype == np.uint64 else lo64
    words[:, 1] = hi64
    valid = None if mask is None else pa.array(~mask).buffers()[1]
    return pa.Array.from_buffers(t, n, [valid, pa.py_buffer(words.tobytes())])

def text_pool(rng, g, n):
    mode = rng.choices(['words', 'mid', 'unique', 'sentences', 'long', 'const', 'numbers'], [30, 15, 18, 14, 4, 5, 8])[0]
    if mode == 'const': return mode, [rng.choice(WORDS)]
    if mode == 'words': return mode, rng.sample(WORDS, rng.randint(2, len(WORDS)))
    if mode == 'mid':
        k = rng.choice([30, 200, 256, 257, 1000, 5000]); return mode, ['Brand#%d%s' % (i, rng.choice(['', 'x', ' é'])) for i in range(k)]
    if mode == 'numbers': return mode, ['%05d' % i for i in range(rng.choice([10, 500, 20000]))]
    if mode == 'unique':
        p = rng.choice(['user_', 'https://example.com/p/', '']); return mode, [p + format(x, 'x') for x in g.integers(0, 2**60, max(1, n)).tolist()]
    if mode == 'sentences':
        return mode, [' '.join(rng.choices(WORDS, k=rng.randint(0, 12))) for _ in range(min(max(n, 1), 4000))]
    return mode, [rng.choice(WORDS[:6]) * rng.choice([1, 10, 100, 900]) + str(i) for i in range(min(max(n, 1), 60))]

class ColumnMaker:
    """Draws the values of one column for each file; type and domain stay, the distribution may change."""
    def __init__(self, name, t, rng, g, calm=False):
        self.col, self.rng, self.g, self.calm = Col(name, t), rng, g, calm
        self.t = t; self.pool = None
        self.nulls = None if rng.random() < .5 else 'none'
        c = self.col.cls
        # the last two are of any year: of most of them chrono, and so arrow-rs, knows no parts
        if c == 'date': self.lo, self.hi = rng.choice([(8000, 20000), (15000, 15400), (-40000, 60000), (-2**31, 2**31 - 1), (-97000000, 96000000)])
        self.col.wild |= c == 'date' and self.hi > 10**7
        if c == 'ts': self.lo, self.hi = rng.choice([(1262304000, 1767225600), (1600000000, 1600100000), (-2000000000, 4000000000)])
        self.shared_mode = rng.random() < .6
        self.mode = None
    def make(self, n):
        rng, g, t, c = self.rng, self.g, self.t, self.col.cls
        mask = null_mask(n, rng, g, self.nulls)
        if c in ('text', 'bin'): return self.text(n, mask)
        if c == 'float': return self.floats(n, mask)
        if c == 'dec': return self.dec(n, mask)
        if not self.shared_mode or self.mode is None:
            self.mode = rng.choice(INT_MODES if not self.calm else ['runs', 'few', 'narrow', 'gaps', 'sorted', 'walk', 'const', 'steps'])
        m = self.mode
        if c == 'bool':
            m = rng.choice(['runs', 'narrow', 'const', 'outliers']); return with_nulls(raw_ints(n, 0, 1, rng, g, m, 0), t, mask)
        if c == 'int':
            lo, hi = bounds(t)
            if self.calm: lo, hi = max(lo, -10**6), min(hi, 10**6)
            return with_nulls(raw_ints(n, lo, hi, rng, g, m), t, mask)
        if c == 'date':
            lo, hi = self.lo, self.hi
            if m == 'extremes' and rng.random() < .3: lo, hi = -2**31, 2**31 - 1; self.col.wild = True
            # near one end of them if all of the values are near each other
            b = rng.choice([lo, -96465292, 95026236 - 50, 0]) if self.col.wild else lo
            return with_nulls(raw_ints(n, lo, hi, rng, g, m, b), t, mask)
        if c == 'ts':
            per = PER[t.unit]; lo, hi = self.lo * per, self.hi * per
            if m == 'extremes' and rng.random() < .3: hi = 2**63 // (1000 if t.unit == 's' else 1) - 1; lo = -hi; self.col.wild = True
            a = raw_ints(n, lo, hi, rng, g, m, lo)
            if not self.col.wild and rng.random() < .5: a = a // per * per
            return with_nulls(a, t, mask)
        if c == 'time':
            return with_nulls(raw_ints(n, 0, 86400 * PER[t.unit] - 1, rng, g, m, 0), t, mask)
        if c == 'dur':
            self.col.wild |= m in ('wide', 'extremes', 'few', 'outliers', 'twovalues', 'nearmax', 'nearmin')
            return with_nulls(raw_ints(n, -2**62, 2**62, rng, g, m), t, mask)
        raise ValueError(c)
    def text(self, n, mask):
        rng, g, t = self.rng, self.g, self.t
        if self.pool is None or not self.shared_mode:
            mode, pool = text_pool(rng, g, n)
            self.pool = (mode, pool)
        mode, pool = self.pool
        if mode == 'unique' and len(pool) < n: pool = (pool * (n // len(pool) + 1))
        k = len(pool)
        how = rng.choice(['uniform', 'skew', 'runs', 'sorted'])
        if mode == 'unique' or how == 'sorted': at = np.sort(g.integers(0, k, n)) if how == 'sorted' else np.arange(n) % k
        elif how == 'uniform': at = g.integers(0, k, n)
        elif how == 'skew': at = (g.random(n)**4 * k).astype(int)
        else: at = runs(n, g, rng.choice([3, 50, 1500]), lambda q: g.integers(0, k, q))
        if k > 0 and mode == 'long': at = g.integers(0, k, n)
        v = pa.array([x.encode() for x in pool] if self.col.cls == 'bin' else pool,
                     type=t.value_type if pa.types.is_dictionary(t) else t)
        i = pa.array(at.astype(np.int32), mask=mask)
        if pa.types.is_dictionary(t):
            u = list(dict.fromkeys(pool)); pos = {x: j for j, x in enumerate(u)}
            remap = np.array([pos[x] for x in pool], dtype=np.int32)
            i = pa.array(remap[at] if n else at.astype(np.int32), mask=mask)
            return pa.DictionaryArray.from_arrays(i, pa.array(u, type=t.value_type))
        return v.take(i)
    def floats(self, n, mask):
        rng, g, t = self.rng, self.g, self.t
        if not self.shared_mode or self.mode is None:
            self.mode = rng.choices(['cents', 'ints', 'normal', 'few', 'const', 'special', 'wide', 'decout', 'runs', 'sorted', 'tiny'],
                                    [25, 10, 15, 10, 4, 10, 4, 12, 6, 6, 3])[0]
        m = self.mode; f32 = t == pa.float32()
        mag = rng.choice([1, 100, 10**5]) if f32 else rng.choice([1, 100, 10**5, 10**8])
        if m == 'cents': a = np.round(g.random(n) * mag, rng.choice([0, 1, 2, 4])) * rng.choice([1, 1, -1])
        elif m == 'ints': a = g.integers(-mag, mag, n, endpoint=True).astype(float)
        elif m == 'normal': a = g.normal(0, mag, n)
        elif m == 'few': a = g.normal(0, mag, rng.choice([2, 9, 300]))[g.integers(0, 2, n)] if rng.random() < .3 else np.round(g.normal(0, mag, 40), 2)[g.integers(0, 40, n)]
        elif m == 'const': a = np.full(n, rng.choice([0.0, -0.0, 1.5, float('nan'), 0.1]))
        elif m == 'special':
            a = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5, 0.1, 2.0**-140 if f32 else 5e-324, 1e10])[g.integers(0, 10, n)]
            if rng.random() < .5: a = np.where(g.random(n) < .9, np.round(g.random(n) * 100, 2), a)
        elif m == 'wide':
            self.col.wild = True
            e = g.integers(-37 if f32 else -300, 37 if f32 else 300, n)
            a = g.normal(0, 1, n) * 10.0**e
        elif m == 'decout':
            a = np.round(g.random(n) * mag, 2); at = g.random(n) < .01; a[at] = g.normal(0, 1, int(at.sum()))
        elif m == 'runs': a = runs(n, g, rng.choice([4, 300]), lambda k: np.round(g.random(k) * mag, 1))
        elif m == 'sorted': a = np.sort(np.round(g.normal(0, mag, n), 3))
        else: a = g.integers(-100, 100, n) * (1e-44 if f32 else 1e-320); self.col.wild = True
        if f32: a = a.astype(np.float32)
        if len(a) and (np.isnan(a).any() or rng.random() < 0): self.col.nan = True
        return pa.array(a, type=t, mask=mask, from_pandas=False)
    def dec(self, n, mask):
        rng, g, t = self.rng, self.g, self.t
        top = 10**t.precision - 1
        if not self.shared_mode or self.mode is None:
            self.mode = rng.choice(INT_MODES + (['huge', 'huge'] if t.precision > 18 and not self.calm else []))
        m = self.mode
        if m == 'huge':
            h = top >> 64
            hi = g.integers(-h, h, n) if h > 0 else g.integers(-1, 1, n)
            lo = g.integers(0, 2**64, n, dtype=np.uint64)
            if h == 0: hi = np.zeros(n, np.int64); lo = lo % np.uint64(min(top, 2**64 - 1))
            if rng.random() < .3 and n: k = g.integers(0, min(n, 50), n); hi, lo = hi[k], lo[k]
            return decimals(lo, hi, t, mask)
        r = min(top, 2**62) if not self.calm else min(top, 10**7)
        a = raw_ints(n, -r, r, rng, g, m)
        return decimals(a, a >> 63, t, mask)

def random_type(rng, fmt):
    c = rng.choices(['int', 'float', 'dec', 'bool', 'date', 'ts', 'time', 'dur', 'text', 'dict', 'bin', 'nested'],
                    [30, 14, 12, 5, 9, 8, 3, 2, 16, 4, 1, 1])[0]
    if c == 'int': return INTS[rng.choices(list(INTS), [2, 3, 6, 6, 2, 2, 3, 2])[0]]
    if c == 'float': return rng.choice([pa.float32(), pa.float64(), pa.float64()])
    if c == 'dec':
        p = rng.choice([4, 9, 12, 15, 15, 18, 19, 25, 30, 38]); return pa.decimal128(p, rng.choice([0, 2, 2, min(4, p), min(10, p), p if p < 10 else 6]))
    if c == 'bool': return pa.bool_()
    if c == 'date': return pa.date32()
    if c == 'ts': return pa.timestamp(rng.choice(['s', 'ms', 'us', 'ns']), rng.choice([None, None, None, 'UTC', '+02:00', 'Europe/Berlin']))
    if c == 'time': return rng.choice([pa.time32('s' if fmt == 'arrow' else 'ms'), pa.time32('ms'), pa.time64('us'), pa.time64('ns')])
    if c == 'dur': return pa.duration(rng.choice(['s', 'ms', 'us', 'ns']))
    if c == 'text': return rng.choice([pa.string()] * 5 + ([pa.large_string()] if fmt == 'arrow' else []))   # Parquet's are read as views
    if c == 'dict': return pa.dictionary(pa.int32(), pa.string())
    if c == 'bin': return rng.choice([pa.binary(), pa.binary(4)]) if False else pa.binary()
    return pa.list_(pa.int32())

def raw_value(s):
    """The raw value of a scalar, integers for what is stored as one."""
    if not s.is_valid: return None
    t = s.type
    if pa.types.is_dictionary(t): return s.as_py()
    if pa.types.is_date(t) or pa.types.is_time(t) or pa.types.is_timestamp(t) or pa.types.is_duration(t):
        return s.value
    if pa.types.is_decimal(t):
        d = s.as_py(); sign, digits, e = d.as_tuple()
        return (-1 if sign else 1) * int(''.join(map(str, digits))) * 10**(e + t.scale)
    return s.as_py()

def sample(col, arrays, rng):
    vals = []
    total = sum(len(a) for a in arrays)
    for a in arrays:
        for _ in range(5):
            if len(a): vals.append(raw_value(a[rng.randrange(len(a))]))
    vals = [v for v in vals if v is not None]
    c, t = col.cls, col.t
    if c == 'nested': return
    extra = []
    nums = [v for v in vals if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if c in ('int', 'dec', 'date', 'ts', 'time', 'dur'):
        try:
            mm = [pc.min_max(a) for a in arrays if len(a)]
            for x in mm:
                for k in ('min', 'max'):
                    v = raw_value(x[k])
                    if v is not None: extra += [v, v - 1, v + 1]
            if nums and c != 'time': extra += [nums[0] + 1, 0]
        except Exception: pass
        if c == 'int':
            lo, hi = bounds(t); extra += [lo, hi, lo - 1, hi + 1, 0, -1, 1]
        if c == 'dec': extra += [0, 1, -1, 10**t.precision - 1]
        if c == 'date': extra = [v for v in extra if -2**31 <= v < 2**31]
        if c == 'time': extra = [v for v in extra if 0 <= v < 86400 * PER[t.unit]]
        if c in ('ts', 'dur'): extra = [v for v in extra if -2**63 < v < 2**63]
    if c == 'float': extra += [0.0, -0.0, float('nan'), float('inf'), float('-inf'), 1.0, 1e300] + [v + 1 for v in nums[:2]] + [math.nextafter(v, 1e9) for v in nums[:2]]
    if c == 'text': extra += ['', 'zzzz', 'a'] + [v[:3] for v in vals[:2]]; vals = [v for v in vals if len(v) < 300]
    if c == 'bin': extra += [b'', b'\xff']
    rng.shuffle(extra)
    col.samples = [literal(t, v, rng) for v in vals[:10] * 2 + extra[:8]]
    col.texts = [v for v in vals if isinstance(v, str)]
    if not col.samples: col.samples = ['NULL'] if c not in ('int', 'float', 'dec') else ['0']
    col.nums = [abs(v) for v in nums if not (isinstance(v, float) and (math.isnan(v) or math.isinf(v)))]

# ---------------------------------------------------------------- tables

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
            s += ["SET vectile.gpu = '%s'" % rng.choice(['on', 'on', 'on', 'auto'])]
            s.append("SET vectile.gpu.build_from_rows = %d" % rng.choice([0, 0, 0, 1000, 1 << 20]))
            if rng.random() < .15: s.append("SET vectile.gpu.keep_lookups = 'false'")
            if rng.random() < .15: s.append("SET vectile.gpu.memory_limit = '%s'" % rng.choice(['20M', '5M', '60M']))
            if rng.random() < .15: s.append("SET vectile.gpu.host_memory_limit = '%s'" % rng.choice(['0', '1M', '20M']))
            if rng.random() < .15: s.append("SET vectile.gpu.max_build_rows = %d" % rng.choice([0, 10, 1000, 5000]))
        else: s.append("SET vectile.gpu = 'off'")
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

def write_source(table, name, fmt, chunk):
    if fmt == 'parquet':
        pq.write_table(table, name, row_group_size=chunk, compression='zstd' if len(table) > 5000 else 'none')
    else:
        with pa.OSFile(name, 'wb') as f, ipc.new_file(f, table.schema) as w:
            if len(table): w.write_table(table)
            else: w.write_batch(pa.RecordBatch.from_arrays([pa.array([], type=c.type) if not pa.types.is_dictionary(c.type) else pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), pa.array([], pa.string())) for c in table.schema], schema=table.schema))

# ---------------------------------------------------------------- running

STATS = collections.Counter()
REASONS = collections.Counter()
PEAK = [0]
BIG = []
Result = collections.namedtuple('Result', 'status out err wall rss')

def run_process(bin, tables, script, dir, hang, out_name='stdout'):
    """status: ok, error, crash, hang; hang is seconds without output."""
    path = os.path.join(dir, 'script%d.sql' % os.getpid())
    with open(path, 'w') as f: f.write(script)
    cmd = [bin, 'sql', '--format', 'csv', '-f', path]
    for n, p in tables: cmd += ['-t', '%s=%s' % (n, p)]
    so, se = os.path.join(dir, out_name), os.path.join(dir, 'stderr')
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
    if rss > 4: BIG.append((rss, script))
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

def run_many(bin, tables, settings, stmts, dir, hang):
    """stmts: (id, sql, what) with what in copy, show. Returns id -> (status, payload)."""
    out = {}
    todo = list(stmts)
    res = os.path.join(dir, 'res'); os.makedirs(res, exist_ok=True)
    while todo:
        head = ''.join(s + ';\n' for s in settings)
        body = []
        for id, sql, what in todo:
            body.append("SELECT '@@%s' AS m;\n" % id)
            if what == 'copy':
                f = os.path.join(res, id + '.parquet')
                if os.path.exists(f): os.remove(f)
                body.append("COPY (%s) TO '%s' STORED AS PARQUET;\n" % (sql, f))
            else: body.append(sql + ';\n')
        r = run_process(bin, tables, head + ''.join(body) + "SELECT '@@end' AS m;\n", dir, hang)
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
            for s in todo: out.update(run_many(bin, tables, settings, [s], dir, hang))
            return out
        last = ids[-1] if ids[-1] != 'end' else None
        if last is None: return out
        out[last] = (r.status, r.err)
        k = [s[0] for s in todo].index(last)
        todo = todo[k + 1:]
        if len(out) and STATS is not None: STATS['restarts'] += 1
    return out

# ---------------------------------------------------------------- comparing

def norm_col(a):
    """A chunked array as something sortable and comparable, exactly."""
    t = a.type
    a = a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a
    if isinstance(a, pa.ChunkedArray): a = pa.concat_arrays(a.chunks) if a.num_chunks else pa.array([], t)
    if pa.types.is_dictionary(t): a = a.cast(t.value_type); t = a.type
    if pa.types.is_large_string(t) or str(t) == 'string_view' or pa.types.is_string(t): return a.cast(pa.large_string())
    if pa.types.is_large_binary(t) or str(t) == 'binary_view' or pa.types.is_binary(t): return a.cast(pa.large_binary())
    if pa.types.is_floating(t):
        f = np.asarray(a.fill_null(0) if a.null_count else a).astype(np.float64 if t != pa.float32() else np.float32)
        i = f.view(np.int32 if f.dtype == np.float32 else np.int64).astype(np.int64)
        i[np.isnan(f)] = 2**63 - 1
        return pa.array(i, mask=np.asarray(a.is_null()) if a.null_count else None)
    if pa.types.is_timestamp(t) or pa.types.is_duration(t) or pa.types.is_time64(t): return a.view(pa.int64())
    if pa.types.is_time32(t) or pa.types.is_date32(t): return a.view(pa.int32())
    if pa.types.is_nested(t): return pa.array([repr(x) for x in a.to_pylist()], type=pa.large_string())
    if pa.types.is_null(t): return pa.array([None] * len(a), pa.int8())
    return a

def type_name(t):
    s = str(t)
    if pa.types.is_dictionary(t): s = str(t.value_type)
    return {'large_string': 'string', 'string_view': 'string', 'large_binary': 'binary', 'binary_view': 'binary'}.get(s, s)

def floats_of(a):
    a = a.combine_chunks()
    if isinstance(a, pa.ChunkedArray): a = pa.concat_arrays(a.chunks) if a.num_chunks else pa.array([], a.type)
    nulls = np.asarray(a.is_null())
    f = np.asarray(a.cast(pa.float64()).fill_null(0.0)) if len(a) else np.zeros(0)
    return f, nulls

def compare(fa, fb, tags, mag=None):
    """Result files of oracle and subject. Returns (verdict, text): equal, tolerance, zero, nanminmax, schema, rows, values."""
    ea, eb = os.path.exists(fa), os.path.exists(fb)
    a = pq.read_table(fa) if ea else None
    b = pq.read_table(fb) if eb else None
    na, nb = (len(a) if ea else 0), (len(b) if eb else 0)
    if na == 0 and nb == 0 and (not ea or not eb): return 'equal', ''
    if na != nb: return 'rows', 'oracle %d rows, subject %d rows' % (na, nb)
    ta, tb = [type_name(f.type) for f in a.schema], [type_name(f.type) for f in b.schema]
    if ta != tb: return 'schema', 'types %s and %s' % (ta, tb)
    if na == 0: return 'equal', ''
    exact = [i for i in range(a.num_columns) if tags[i] == 'exact' or not pa.types.is_floating(a.schema.field(i).type)]
    fuzzy = [i for i in range(a.num_columns) if i not in exact]
    def prep(t):
        cols = {('c%d' % i): norm_col(t.column(i)) for i in exact}
        x = pa.table(cols) if cols else None
        keys = [('c%d' % i, 'ascending') for i in exact]
        order = pc.sort_indices(x, sort_keys=keys) if cols else pa.array(np.arange(len(t)))
        return (x.take(order) if cols else None), order
    xa, oa = prep(a); xb, ob = prep(b)
    if xa is not None and not xa.equals(xb):
        for i in exact:
            ca, cb = xa.column('c%d' % i), xb.column('c%d' % i)
            if not ca.equals(cb):
                la, lb = ca.to_pylist(), cb.to_pylist()
                bad = [j for j in range(na) if la[j] != lb[j]]
                def of(t, order):                  # pyarrow takes no rows of views
                    c = t.column(i)
                    return (c.cast(type_name(c.type)) if str(c.type).endswith('_view') else c).take(order)
                va, vb = of(a, oa), of(b, ob)
                def show(v, j):
                    s = v[j]
                    return repr(raw_value(s)) if not pa.types.is_temporal(s.type) else '%s:%s' % (s.type, raw_value(s))
                d = '; '.join('%s | %s' % (show(va, j), show(vb, j)) for j in bad[:4])
                return 'values', 'column %d (%s), %d of %d rows differ (sorted): %s' % (i, ta[i], len(bad), na, d)
        return 'values', 'rows differ'
    verdict = 'equal'
    if fuzzy:
        if xa is not None and len(exact):
            pass
        for i in fuzzy:
            va, za = floats_of(a.column(i).take(oa)); vb, zb = floats_of(b.column(i).take(ob))
            if xa is None or na > 1:           # ties among exact columns: sort within by value
                if xa is None: s, u = np.argsort(va), np.argsort(vb); va, za, vb, zb = va[s], za[s], vb[u], zb[u]
            if not np.array_equal(za, zb): return 'values', 'column %d: nulls differ' % i
            same = (va.view(np.int64) == vb.view(np.int64)) | (np.isnan(va) & np.isnan(vb)) | za
            if same.all(): continue
            bad = np.nonzero(~same)[0]
            x, y = va[bad], vb[bad]
            if tags[i] == 'fmm':
                if (x == y).all(): verdict = 'zero' if verdict == 'equal' else verdict; continue
                nn = np.isnan(x) | np.isnan(y)
                if nn[~(x == y)].all(): verdict = 'nanminmax'; continue
                if MM_NAN[0]: verdict = 'nanminmax'; continue
                return 'values', 'column %d (min/max): %s' % (i, [(float(p), float(q)) for p, q in zip(x[:4], y[:4])])
            with np.errstate(all='ignore'):
                ok = np.abs(x - y) <= 1e-9 * np.maximum(np.abs(x), np.abs(y))
                if not ok.all() and mag is not None:
                    m = mag(i)
                    if m is not None and len(m) == na:
                        ok |= np.abs(x - y) <= 1e-10 * np.abs(m[bad]) + 1e-300
                        if ok.all(): verdict = 'magnitude'; continue
            if not ok.all():
                k = np.nonzero(~ok)[0][:4]
                return 'fsum', 'column %d (float sum): %s' % (i, [(float(x[j]), float(y[j])) for j in k])
            if verdict == 'equal': verdict = 'tolerance'
    return verdict, ''

MM_NAN = [False]

# ---------------------------------------------------------------- queries

class Q:
    def __init__(self):
        self.select, self.tags, self.frm, self.joins, self.where, self.group, self.having = [], [], '', [], [], [], []
        self.distinct = False; self.limit = None; self.outer = None; self.kind = ''; self.outer_tags = None; self.union = None
        self.nan = False
    def core(self, mag=False):
        sel = ', '.join('%s AS o%d' % (s.sql(mag), i) for i, s in enumerate(self.select))
        s = 'SELECT %s%s FROM %s' % ('DISTINCT ' if self.distinct else '', sel, self.frm)
        for j in self.joins: s += ' ' + j.sql(mag)
        if self.where: s += ' WHERE ' + ' AND '.join(w.sql(mag) for w in self.where)
        if self.group: s += ' GROUP BY ' + ', '.join(x.sql(mag) for x in self.group)
        if self.having: s += ' HAVING ' + ' AND '.join(x.sql(mag) for x in self.having)
        return s
    def sql(self, mag=False):
        s = self.core(mag)
        if self.union is not None: s = "SELECT * FROM (SELECT 0 AS b, u0.* FROM (%s) u0 UNION ALL SELECT 1 AS b, u1.* FROM (%s) u1) u" % (s, self.union.core(mag))
        if self.limit:
            cols = [i for i, t in enumerate(self.tags) if t == 'exact']
            s += ' ORDER BY ' + ', '.join('%d%s' % (i + 1, d) for i, d in zip(cols, self.limit[2])) + ' LIMIT %d' % self.limit[0] + (' OFFSET %d' % self.limit[1] if self.limit[1] else '')
        if self.outer: s = self.outer.replace('@@', s)
        return s
    def all_tags(self):
        if self.outer: return self.outer_tags
        return (['exact'] if self.union is not None else []) + self.tags

class Gen:
    def __init__(self, set, seed):
        self.set, self.rng = set, random.Random(seed)
        self.fuse = False                     # only what can be fused on a GPU
        self.share = .75 if set.args.mode == 'gpu' else .4
        self.tables = {t.name: t for t in set.tables}
    # literals and leaves
    def lit_of(self, c):
        rng = self.rng
        if rng.random() < .02: return lit('NULL')
        s = rng.choice(c.samples)
        if c.cls == 'date' and rng.random() < .1: s = s.replace('DATE ', '')
        if c.cls == 'int' and rng.random() < .06: s = rng.choice(['%s.5' % s.strip('()'), "CAST(%s AS DOUBLE)" % s, "'%s'" % s.strip('()'), "CAST(%s AS DECIMAL(22,1))" % s])
        return lit(s)
    def by(self, scope, *classes, calm=False):
        return [c for c in scope if c.cls in classes and not (calm and c.wild)]
    def col(self, c): return lit(c.ref, c.cls)
    # numbers
    def num(self, scope, depth=1, cls=None):
        """(node, class, wild)"""
        rng = self.rng
        cs = self.by(scope, *(cls or ('int', 'float', 'dec')))
        if not cs: return lit(str(rng.randint(-5, 100)), 'int'), 'int', False
        c = rng.choice(cs); n, k, w = self.col(c), c.cls, c.wild or (c.cls == 'float' and max(c.nums or [0]) > 1e12)
        if depth <= 0 or rng.random() < .35: return n, k, w
        r = rng.random()
        if self.fuse and (.86 <= r < .94 or r >= .97): r = rng.random() * .8
        if r < .25:
            m, k2, w2 = self.num(scope, depth - 1, (k,)); op = rng.choice(['+', '-', '*'])
            k = 'float' if k2 == 'float' else k
            return N('({} %s {})' % op, n, m, cls=k), k, w or w2 or (k == 'float' and op == '*' and depth > 1)
        if r < .5:
            l = rng.choice(['1', '2', '3', '7', '10', '100', '1000', '-1', '65536', '2147483647', '1000000007'])
            if k == 'float': l = rng.choice(['0.5', '1.1', '2.0', '-3.25', '100'])
            if k == 'dec': l = rng.choice(["1", "2", "CAST(1.05 AS DECIMAL(4,2))", "CAST('0.1' AS DECIMAL(2,1))", '100'])
            op = rng.choice(['+', '-', '*', '*'])
            return (N('({} %s (%s))' % (op, l), n, cls=k) if rng.random() < .7 else N('((%s) %s {})' % (l, op), n, cls=k)), k, w
        if r < .6 and k == 'int':
            return N('({} %s %d)' % (rng.choice(['%', '/', '%']), rng.choice([2, 3, 7, 10, 100, 1000, 4096, -3])), n, cls='int'), 'int', w
        if r < .65 and k == 'float': return N('({} / %s)' % rng.choice(['3.0', '0.1', '7', '1024.0']), n, cls='float'), 'float', w
        if r < .67 and k == 'dec': return N('({} / %s)' % rng.choice(['3', "CAST('1.5' AS DECIMAL(3,1))"]), n, cls='dec'), 'dec', w
        if r < .74: return self.case_of(scope, n, k, w)
        if r < .80:
            p = self.pred(scope, 0); m, k2, w2 = self.num(scope, 0, (k,)); k = 'float' if k2 == 'float' else k
            els = rng.choice([' ELSE {}', ' ELSE {}', ' ELSE 0', ''])
            kids = [p, n] + ([m] if '{}' in els else [])
            return N('(CASE WHEN {} THEN {}%s END)' % els, *kids, cls=k), k, w or w2
        if r < .86: return N('coalesce({}, 0)', n, cls=k), k, w
        if r < .92:
            t = rng.choice(['BIGINT', 'DOUBLE', 'DOUBLE'] if k == 'int' else ['DOUBLE']) if rng.random() < .9 else rng.choice(['INT', 'SMALLINT', 'DECIMAL(20,3)'])
            k2 = {'DOUBLE': 'float', 'DECIMAL(20,3)': 'dec'}.get(t, 'int')
            return N(('TRY_CAST' if t not in ('DOUBLE',) and rng.random() < .6 else 'CAST') + '({} AS %s)' % t, n, cls=k2), k2, w or (k == 'dec') or (k == 'int' and k2 == 'float' and True)
        if r < .94: return N('nullif({}, {})', n, self.lit_of(c), cls=k), k, w
        if r < .97 and self.dated(scope): return self.part(scope), 'int', False
        if r < .985 and self.by(scope, 'text'): return N(rng.choice(['length({})', 'strpos({}, \'a\')', 'octet_length({})']), self.col(rng.choice(self.by(scope, 'text'))), cls='int'), 'int', False
        return N('(- {})', n, cls=k), k, w
    def case_of(self, scope, n, k, w):
        """`CASE base WHEN value THEN ..`: by bits where the base is a float, unlike `=`."""
        rng = self.rng
        bases = [c for c in scope if c.cls not in ('nested', 'bin') and not (self.fuse and c.cls == 'text')]
        floats = self.by(bases, 'float')
        if not bases: return n, k, w
        b = rng.choice(floats) if floats and rng.random() < .5 else rng.choice(bases)
        same = [d for d in bases if d is not b and str(d.t) == str(b.t)]
        literals = rng.random() < .5                          # then it is a table of values for DataFusion
        fmt, kids = '(CASE {}', [self.col(b)]
        for _ in range(rng.randint(1, 4)):
            when = self.col(rng.choice(same)) if same and not literals and rng.random() < .4 else self.lit_of(b)
            if b.cls == 'float' and rng.random() < .4: when = lit(rng.choice(['0.0', '-0.0', "CAST('NaN' AS DOUBLE)"]))
            fmt += ' WHEN {} THEN {}'; kids += [when, lit(str(rng.randint(0, 9)), 'int') if literals else n]
        els = rng.choice(['', ' ELSE 0', ' ELSE 7'])
        if literals: k, w = 'int', False
        return N(fmt + els + ' END)', *kids, cls=k), k, w
    def dated(self, scope):
        """Columns that have parts: dates of any year, and timestamps of usual ones."""
        return self.by(scope, 'date') + self.by(scope, 'ts', calm=True)
    def part(self, scope):
        rng = self.rng
        c = rng.choice(self.dated(scope))
        p = rng.choice(['year', 'year', 'month', 'day', 'quarter', 'dow', 'doy', 'week'] + (['hour', 'minute', 'second'] if c.cls == 'ts' else []))
        return N("CAST(date_part('%s', {}) AS BIGINT)" % p if rng.random() < .3 else ("extract(%s FROM {})" % p if rng.random() < .5 else "date_part('%s', {})" % p), self.col(c), cls='int')
    # predicates
    def pred(self, scope, depth=2):
        rng = self.rng
        if depth > 0 and rng.random() < .55:
            r = rng.random()
            if r < .35: return N('({} AND {})', self.pred(scope, depth - 1), self.pred(scope, depth - 1), cls='bool')
            if r < .75: return N('({} OR {})', self.pred(scope, depth - 1), self.pred(scope, depth - 1), cls='bool')
            if r < .92: return N('(NOT {})', self.pred(scope, depth - 1), cls='bool')
            if r < .97: return N('({} %s)' % rng.choice(['IS TRUE', 'IS FALSE', 'IS NOT TRUE', 'IS NOT FALSE', 'IS UNKNOWN', 'IS NOT UNKNOWN']), self.pred(scope, depth - 1), cls='bool')
            return N('(CASE WHEN {} THEN {} ELSE {} END)', self.pred(scope, 0), self.pred(scope, 0), self.pred(scope, 0), cls='bool')
        return self.leaf(scope)
    def leaf(self, scope):
        rng = self.rng
        cs = [c for c in scope if c.cls not in (('nested', 'bin') if self.fuse else ('nested',))]
        if not cs: return lit('true', 'bool')
        c = rng.choice(cs); n = self.col(c); k = c.cls
        r = rng.random()
        if self.fuse and k == 'text' and .32 <= r < .4: r = .5
        op = rng.choice(['=', '<', '<=', '>', '>=', '<>', '<', '>='])
        if r < .07: return N('({} IS %sNULL)' % rng.choice(['', 'NOT ']), n, cls='bool')
        if r < .08: return lit(rng.choice(['true', 'false', '(1 = 0)', 'CAST(NULL AS BOOLEAN)']), 'bool')
        if k == 'bool':
            if r < .6: return N(rng.choice(['{}', '(NOT {})', '({} = true)', '({} IS TRUE)', '({} IS NOT FALSE)', '({} = false)', '({} < true)']), n, cls='bool')
        if r < .17:
            l = [self.lit_of(c) for _ in range(rng.choice([1, 2, 3, 5, 8] + ([] if self.fuse else [17, 40])))]
            return N('({} %sIN (%s))' % (rng.choice(['', '', 'NOT ']), ', '.join(['{}'] * len(l))), n, *l, cls='bool')
        if r < .27: return N('({} %sBETWEEN {} AND {})' % rng.choice(['', '', 'NOT ']), n, self.lit_of(c), self.lit_of(c), cls='bool')
        if r < .32: return N('({} IS %sDISTINCT FROM {})' % rng.choice(['', 'NOT ']), n, self.lit_of(c), cls='bool')
        if r < .40:
            same = [d for d in cs if d.cls == k and d is not c and (str(d.t) == str(c.t) or k in ('int', 'float', 'dec', 'text', 'date'))]
            if same: return N('({} %s {})' % rng.choice([op, op, 'IS DISTINCT FROM', 'IS NOT DISTINCT FROM']), n, self.col(rng.choice(same)), cls='bool')
        if k == 'text' and r < .8: return self.text_pred(c)
        if k in ('int', 'float', 'dec') and r < .62:
            e, k2, _ = self.num(scope, 2)
            if rng.random() < .3: f, _, _ = self.num(scope, 1, (k2,)) if k2 in ('int', 'float', 'dec') else (None, 0, 0); return N('({} %s {})' % op, e, f, cls='bool')
            return N('({} %s {})' % op, e, self.lit_of(c), cls='bool')
        if (k == 'date' or k == 'ts' and not c.wild) and r < .6:
            s = rng.random() * (.5 if self.fuse or c.wild else 1)
            if s < .5:
                p = rng.choice(['year', 'month', 'day', 'quarter', 'dow', 'doy'])
                v = {'year': rng.choice([1992, 1998, 2009, 2011, 2013, 2020, 1970]), 'month': rng.randint(0, 13), 'day': rng.randint(1, 31), 'quarter': rng.randint(1, 4), 'dow': rng.randint(0, 6), 'doy': rng.randint(1, 366)}[p]
                return N("(date_part('%s', {}) %s %d)" % (p, op, v), n, cls='bool')
            if s < .7: return N("({} %s {} + INTERVAL '%s')" % (op, rng.choice(['3 days', '1 month', '1 year', '90 days'])), n, self.lit_of(c), cls='bool')
            if s < .9: return N("(date_trunc('%s', {}) %s {})" % (rng.choice(['month', 'year', 'day']), op), n, self.lit_of(c), cls='bool')
            if k == 'ts': return N('(CAST({} AS DATE) %s DATE \'2013-05-05\')' % op, n, cls='bool')
            return N("(CAST({} AS TIMESTAMP) %s TIMESTAMP '2011-01-01 12:00:00')" % op, n, cls='bool')
        if rng.random() < .08: return N('({} %s {})' % op, self.lit_of(c), n, cls='bool')
        return N('({} %s {})' % op, n, self.lit_of(c), cls='bool')
    def text_pred(self, c):
        rng = self.rng; n = self.col(c)
        t = rng.choice(c.texts) if getattr(c, 'texts', None) else 'x'
        t = t[:40]
        r = rng.random()
        if r < .5:
            i = rng.randrange(len(t) + 1); j = min(len(t), i + rng.randint(1, 4)); s = t[i:j]
            p = rng.choice([t[:3] + '%', '%' + s + '%', '%' + t[-3:], t[:1] + '_' + t[2:], '%', '', s, '%' + s + '%' + t[-1:], '_%', '\\%' + s])
            return N("({} %s%s %s)" % (rng.choice(['', '', 'NOT ']), rng.choice(['LIKE', 'LIKE', 'ILIKE']), quote(p)), n, cls='bool')
        if r < .6: return N("(substr({}, %d, %d) = %s)" % (rng.choice([1, 1, 2, 0]), rng.randint(0, 4), quote(t[:2])), n, cls='bool')
        if r < .7: return N('(%s({}) %s %d)' % (rng.choice(['length', 'char_length', 'octet_length']), rng.choice(['=', '<', '>=', '<>']), rng.choice([0, 1, 5, 6, 11, len(t)])), n, cls='bool')
        if r < .78: return N("(%s({}) = %s)" % ((f := rng.choice(['upper', 'lower', 'trim', 'reverse'])), quote({'upper': t.upper(), 'lower': t.lower(), 'trim': t.strip(), 'reverse': t[::-1]}[f])), n, cls='bool')
        if r < .83: return N("starts_with({}, %s)" % quote(t[:2]), n, cls='bool')
        if r < .88: return N("({} ~ %s)" % quote('^' + re.sub(r'[^A-Za-z0-9 ]', '.', t[:3])), n, cls='bool')
        if r < .92: return N("(coalesce({}, 'zz') >= %s)" % quote(t[:3]), n, cls='bool')
        if r < .95: return N("(({} || 'x') = %s)" % quote(t + 'x'), n, cls='bool')
        return N('({} %s {})' % rng.choice(['<', '>', '>=', '=']), n, self.lit_of(c), cls='bool')
    # aggregates
    def agg(self, scope):
        """(node, tag)"""
        rng = self.rng
        filt = ''
        kids = []
        f = rng.choices(['count*', 'count', 'sum', 'min', 'max', 'avg', 'countd', 'case', 'other'], [18, 12, 30, 12, 12, 12, 5, 6, 2])[0]
        flt = self.pred(scope, 1) if rng.random() < .2 else None
        if self.fuse:
            scope = [c for c in scope if c.cls not in ('text', 'bin', 'nested')]
            if f in ('countd', 'other'): f = 'sum'
        suffix = ' FILTER (WHERE {})' if flt is not None else ''
        fk = [flt] if flt is not None else []
        def done(fmt, kids, tag, absf=None): return N(fmt + suffix, *(kids + fk), cls='num', absfmt=(absf + suffix) if absf else None), tag
        cs = [c for c in scope if c.cls != 'nested']
        if f == 'count*' or not cs: return done('count(*)', [], 'exact')
        if f == 'count': return done('count({})', [self.col(rng.choice(cs)) if rng.random() < .8 else self.num(scope, 2)[0]], 'exact')
        if f == 'countd': return done('count(DISTINCT {})', [self.col(rng.choice([c for c in cs if c.cls != 'float'] or cs))], 'exact')
        if f in ('sum', 'avg', 'case'):
            e, k, w = self.num(scope, rng.choice([0, 0, 1, 2]))
            if f == 'case': e = N('(CASE WHEN {} THEN {} ELSE 0 END)', self.pred(scope, 1), e, cls=k); f = 'sum'
            if k == 'float' or f == 'avg':
                if w: return done('count({})', [e], 'exact')
                if k == 'dec': return done(f + '({})', [e], 'exact')
                return done(f + '({})', [e], 'fsum', f + '(abs(CAST({} AS DOUBLE)))')
            return done(f + '({})', [e], 'fsum', f + '(abs(CAST({} AS DOUBLE)))')      # exact unless its type is a float
        if f in ('min', 'max'):
            if rng.random() < .6:
                c = rng.choice(cs)
                return done(f + '({})', [self.col(c)], 'fmm' if c.cls == 'float' else 'exact')
            e, k, w = self.num(scope, 2)
            return done(f + '({})', [e], 'fmm' if k == 'float' else 'exact')
        b = self.pred(scope, 1)
        r = rng.random()
        if r < .5: return done(rng.choice(['bool_and({})', 'bool_or({})']), [b], 'exact')
        ints = self.by(scope, 'int')
        if ints: return done(rng.choice(['bit_xor({})', 'sum(DISTINCT {})', 'bit_and({})']), [self.col(rng.choice(ints))], 'exact')
        return done('count(*)', [], 'exact')
    def group_key(self, scope):
        rng = self.rng
        cs = [c for c in scope if c.cls not in ('nested', 'float') and not (c.name in ('id',) and rng.random() < .9)]
        if rng.random() < .03 and not self.fuse: cs = [c for c in scope if c.cls == 'float'] or cs
        if self.fuse:
            low = [c for c in cs if c.cls != 'bin' and not (c.cls == 'text' and len(set(getattr(c, 'texts', None) or [])) > 8 and c.ref.startswith('f.') and rng.random() < .8)]
            cs = low or cs
        if not cs: return lit('1')
        c = rng.choice(cs); n = self.col(c); r = rng.random()
        if r < .62 or (self.fuse and c.cls == 'text' and c.ref.startswith('f.')): return n
        if c.cls == 'int':
            return N(rng.choice(['({} % 7)', '({} / 10)', '({} + 1)', '({} % 100)', '({} > 5)', '({} IS NULL)', 'coalesce({}, 0)', 'CAST({} AS BIGINT)', '({} * 3 - 1)', "(CASE WHEN {} > 10 THEN 1 WHEN {} IS NULL THEN 2 ELSE 3 END)".replace('{}', c.ref)]).replace('{}', '{}') , n) if True else n
        if c.cls == 'date' and c.wild: return N(rng.choice(["date_part('year', {})", "date_part('month', {})", "date_part('doy', {})", '({} IS NULL)']), n)
        if c.cls in ('date', 'ts') and not c.wild:
            return N(rng.choice(["date_part('year', {})", "extract(month FROM {})", "date_trunc('month', {})", "date_part('dow', {})", '({} IS NULL)']), n)
        if c.cls == 'text': return N(rng.choice(['substr({}, 1, 2)', 'length({})', '({} IS NULL)', "({} LIKE 'a%')", "(CASE WHEN {} LIKE '%a%' THEN 'yes' ELSE 'no' END)", "coalesce({}, 'none')", 'upper({})']), n)
        if c.cls == 'dec': return N(rng.choice(['({} + 1)', '({} > 0)', 'coalesce({}, 0)', '({} * 2)']), n)
        if c.cls == 'bool': return N(rng.choice(['(NOT {})', '({} IS TRUE)', 'coalesce({}, false)']), n)
        return n
    # relations
    def dim_source(self, d, alias):
        """(sql after FROM/JOIN, columns in scope, key sql)"""
        rng = self.rng
        cols = [c.at(alias) for c in d.cols]
        r = rng.random()
        if r < .62: return '%s %s' % (d.name, alias), cols, alias + '."k"'
        own = [c.at('i') for c in d.cols]
        p = self.pred(own, 1).sql()
        if r < .82: return '(SELECT * FROM %s i WHERE %s) %s' % (d.name, p, alias), cols, alias + '."k"'
        if r < .88:
            keep = [c for c in d.cols if c.name == 'k'] + rng.sample(d.cols[1:], rng.randint(0, len(d.cols) - 1))
            return '(SELECT DISTINCT %s FROM %s i) %s' % (', '.join('i."%s"' % c.name for c in keep), d.name, alias), [c.at(alias) for c in keep], alias + '."k"'
        if r < .93 or self.fuse and r < .97:
            return self.joined_source(d, alias, cols)
        if r < .95:
            n = Col('n', pa.int64()); n.samples = ['1', '2', '0']; n.nums = [1]
            x = copy.copy(rng.choice(d.cols[1:])); name = x.name; x.name = 'x'
            if x.cls in ('float', 'nested', 'bool', 'bin'): x = copy.copy(d.cols[0]); name = 'k'; x.name = 'x'
            if x.cls in ('bool',): return '%s %s' % (d.name, alias), cols, alias + '."k"'
            return '(SELECT i."k" AS "k", count(*) AS "n", max(i."%s") AS "x" FROM %s i GROUP BY i."k") %s' % (name, d.name, alias), [d.cols[0].at(alias), n.at(alias), x.at(alias)], alias + '."k"'
        others = [o for o in self.set.tables if o.name != 'f' and o is not d and not o.dup and str(o.key[1]) == str(d.key[1])]
        if others:
            o = rng.choice(others)
            keep = rng.choice(o.cols); kk = copy.copy(keep); kk.name = 'z'
            return '(SELECT i.*, z."%s" AS "z" FROM %s i %s JOIN %s z ON i."k" = z."k") %s' % (keep.name, d.name, rng.choice(['INNER', 'LEFT']), o.name, alias), cols + [kk.at(alias)], alias + '."k"'
        return '%s %s' % (d.name, alias), cols, alias + '."k"'
    def joined_source(self, d, alias, cols):
        """A dimension that is itself a join of two or three, with a condition between any of their columns."""
        rng = self.rng
        others = [o for o in self.set.tables if o.name != 'f' and not o.dup and str(o.key[1]) == str(d.key[1])] or [d]
        sides = {'i': d, 'y': rng.choice(others), 'z': rng.choice(others)}
        if rng.random() < .4: del sides['y']
        columns = [c.at(a) for a, t in sides.items() for c in t.cols if c.cls not in ('nested', 'bin')]
        pairs = [(c, e) for c in columns for e in columns if c.ref[0] != e.ref[0] and str(c.t) == str(e.t)]
        conditions = []
        for _ in range(rng.choice([1, 1, 2])):
            if not pairs: break
            c, e = rng.choice(pairs)
            conditions.append('%s %s %s' % (c.ref, rng.choice(['<', '<=', '>', '>=', '<>', 'IS DISTINCT FROM']), e.ref))
        if rng.random() < .3: conditions.append(self.pred(columns, 0).sql())
        last = sides['z']; keep = rng.choice(last.cols); kk = copy.copy(keep); kk.name = 'z'
        word = 'JOIN' if self.fuse or rng.random() < .7 else 'LEFT JOIN'
        y = ' JOIN %s y ON i."k" = y."k"' % sides['y'].name if 'y' in sides else ''
        on = ' AND '.join(['i."k" = z."k"'] + conditions)
        sql = '(SELECT i.*, z."%s" AS "z" FROM %s i%s %s %s z ON %s) %s' % (keep.name, d.name, y, word, last.name, on, alias)
        return sql, cols + [kk.at(alias)], alias + '."k"'
    def further(self, alias, cols):
        """Joins by columns of a dimension, one behind the other, and the columns that they add. Some have two keys."""
        rng = self.rng
        joins, added = [], []
        for step in range(rng.choice([1, 1, 2])):
            at = '%ss%d' % (alias, step)
            tables = [t for t in self.set.tables if t.name != 'f' and (not t.dup or rng.random() < .1)]
            links = [(c, t) for t in tables for c in cols + added if str(c.t) == str(t.key[1])]
            if not links: break
            c, t = rng.choice(links)
            own = [x.at(at) for x in t.cols]
            on = ['%s = %s."k"' % (c.ref, at)]
            pairs = [(x, y) for x in cols + added for y in own if str(x.t) == str(y.t) and x.cls in ('int', 'text', 'date', 'bool')]
            if pairs and rng.random() < .2: on.append('%s = %s' % tuple(x.ref for x in rng.choice(pairs)))
            joins.append('%s %s %s ON %s' % (rng.choice(['JOIN', 'JOIN', 'JOIN', 'LEFT JOIN']), t.name, at, ' AND '.join(on)))
            added += own
        return joins, added
    def second_key(self, d, alias, key, on, src, cols, fscope):
        """The condition of a join with a key more: of a dimension, or of one that is grouped by both."""
        rng = self.rng
        pairs = [(c, e) for c in fscope for e in cols if str(c.t) == str(e.t) and e.name != 'k' and c.cls in ('int', 'date', 'ts', 'dec', 'text', 'float')]
        if rng.random() < .5:
            for c, e in rng.sample(pairs, min(len(pairs), rng.choice([1, 1, 2]))): on += ' AND %s = %s' % (c.ref, e.ref)
            return on, src, cols
        own = [(c, e) for c in fscope for e in d.cols if str(c.t) == str(e.t) and e.name != 'k' and e.cls in ('int', 'date', 'dec')]
        if not own: return on, src, cols
        c, e = rng.choice(own)
        n = Col('n', pa.int64()); n.samples = ['1', '2', '0']; n.nums = [1]
        y = copy.copy(e); y.name = 'y'
        src = '(SELECT i."k" AS "k", i."%s" AS "y", count(*) AS "n" FROM %s i GROUP BY i."k", i."%s") %s' % (e.name, d.name, e.name, alias)
        return '%s = %s."k" AND %s."y" = %s' % (key, alias, alias, c.ref), src, [d.cols[0].at(alias), y.at(alias), n.at(alias)]
    def similar(self, q):
        """A query that differs in little from one with joins: their tables are kept from one query to the next."""
        rng = self.rng
        places = [(i, m) for i, j in enumerate(q.joins) for m in re.finditer(r'\b[iyz]\."|<=|>=|<>|[<>]| JOIN |LEFT JOIN|\b\d+\b', j.fmt)]
        if not places: return None
        c = copy.deepcopy(q); i, m = rng.choice(places); j = c.joins[i]
        t = m.group(0)
        if t[0] in 'iyz' and t.endswith('."'): new = rng.choice(re.findall(r' ([iyz]) ', j.fmt) or [t[0]]) + '."'
        elif t[0] in '<>': new = rng.choice(['<', '<=', '>', '>=', '<>'])
        elif t.isdigit(): new = str(max(0, int(t) + rng.choice([-1, 1])))
        else: new = ' LEFT JOIN ' if t == ' JOIN ' and not j.fmt[:m.start()].endswith(('LEFT', 'INNER', 'RIGHT', 'FULL')) else t
        j.fmt = j.fmt[:m.start()] + new + j.fmt[m.end():]
        return c if c.sql() != q.sql() else None
    def query(self):
        rng = self.rng
        f = self.tables['f']
        q = Q(); self.fuse = rng.random() < self.share
        base = f if rng.random() < .93 or len(self.set.tables) == 1 else rng.choice(self.set.tables)
        q.frm = base.name + ' f'
        scope = [c.at('f') for c in base.cols]
        q.kind = rng.choices(['agg', 'group', 'star', 'rows', 'distinct'], [16, 24, 36 if base is f and f.links else 0, 16, 8])[0]
        dims = []
        joined = False
        fscope = list(scope)
        if base is f and q.kind == 'star' and rng.random() < .1 and f.rows <= 100000: return self.added(q, base)
        if base is f and f.links and (q.kind == 'star' or rng.random() < .12):
            links = rng.sample(f.links, rng.randint(1, len(f.links)))
            exploded = False
            for i, (fk, d) in enumerate(links):
                a = 'd%d_' % i
                kind = rng.choices(['inner', 'left', 'comma', 'exists', 'notexists', 'in', 'notin', 'right', 'full', 'self'], [42, 16, 6, 9, 6, 8, 4, 3, 1, 2])[0]
                key = 'f."%s"' % fk
                fcol = [c for c in base.cols if c.name == fk][0]
                if kind in ('exists', 'notexists', 'in', 'notin'):
                    inner = [c.at(a) for c in d.cols]
                    p = ' AND ' + self.pred(inner, 1).sql() if rng.random() < .6 else ''
                    pairs = [(c, e) for c in fscope for e in inner if str(c.t) == str(e.t) and c.cls in ('int', 'date', 'ts', 'dec', 'text', 'bool', 'float')]
                    for _ in range(rng.choice([0, 0, 1, 1, 2])):      # beside the key, over both sides
                        if pairs and kind in ('exists', 'notexists'): c, e = rng.choice(pairs); p += ' AND %s %s %s' % (e.ref, rng.choice(['<>', '<>', '<', '<=', '>', '>=', '=']), c.ref)
                    if kind in ('exists', 'notexists') and rng.random() < .25: p += ' AND ' + self.pred(inner + fscope, 1).sql()
                    if kind in ('exists', 'notexists'): w = '%sEXISTS (SELECT 1 FROM %s %s WHERE %s."k" = %s%s)' % ('NOT ' if kind == 'notexists' else '', d.name, a, a, key, p)
                    else: w = '%s %sIN (SELECT %s."k" FROM %s %s WHERE true%s)' % (key, 'NOT ' if kind == 'notin' else '', a, d.name, a, p)
                    if rng.random() < .15: w = '(%s OR %s)' % (w, self.pred(fscope, 0).sql())
                    q.where.append(lit(w, 'bool')); continue
                if self.fuse and kind in ('right', 'full', 'self'): kind = 'inner'
                if d.dup and (exploded or f.rows > 100000): continue
                exploded |= d.dup
                src, cols, k = self.dim_source(d, a)
                if kind == 'self':
                    if base.rows > 20000: continue
                    src, cols, k, key = 'f ' + a, [c.at(a) for c in base.cols], a + '."id"', 'f."id"'; kind = rng.choice(['inner', 'left'])
                on = '%s = %s' % ((key, k) if rng.random() < .6 else (k, key))
                if kind in ('inner', 'comma', 'left') and rng.random() < .25:
                    on, src, cols = self.second_key(d, a, key, on, src, cols, fscope)
                if self.fuse and rng.random() < .9: pass
                elif rng.random() < .04: on = on.replace('=', 'IS NOT DISTINCT FROM')
                elif rng.random() < .05 and fcol.cls == 'int': on = '%s + 1 = %s' % (key, k)
                if rng.random() < .12 and not (self.fuse and kind != 'inner'): on += ' AND ' + self.pred(cols if rng.random() < .6 else cols + fscope, 1).sql()
                further = []
                if kind in ('inner', 'comma', 'left') and rng.random() < (.4 if self.fuse else .25):
                    further, of_further = self.further(a, cols)
                    cols = cols + of_further
                if kind == 'comma':
                    q.joins.append(lit(' '.join([', %s' % src] + further))); q.where.append(lit('(%s)' % on, 'bool'))
                else:
                    word = {'inner': 'JOIN', 'comma': 'JOIN', 'left': 'LEFT JOIN', 'right': 'RIGHT JOIN', 'full': 'FULL JOIN'}[kind]
                    q.joins.insert(sum(1 for j in q.joins if not j.fmt.startswith(',')), lit(' '.join(['%s %s ON %s' % (word, src, on)] + further)))
                scope += cols
                dims += cols
                joined = True
        heavy = q.kind == 'rows' or q.kind == 'distinct'
        for _ in range(rng.choices([0, 1, 2, 3], [22, 45, 23, 10])[0]):
            sc = scope if rng.random() < .5 else (dims if dims and rng.random() < .6 else fscope)
            q.where.append(self.pred(sc, rng.choice([0, 0, 1, 2])))
        if rng.random() < .06:
            ints = self.by(fscope, 'int', 'date', 'dec')
            if ints:
                c = rng.choice(ints); o = rng.choice(self.set.tables); oc = [x for x in o.cols if x.cls == c.cls]
                if oc: q.where.append(lit('(%s %s (SELECT %s(s."%s") FROM %s s))' % (c.ref, rng.choice(['>', '<=', '=', '<>']), rng.choice(['min', 'max']), rng.choice(oc).name, o.name), 'bool'))
        if rng.random() < .05:
            c = rng.choice([c for c in fscope if c.cls not in ('nested', 'float')]); o = [(t, x) for t in self.set.tables for x in t.cols if str(x.t) == str(c.t)]
            if o:
                t, x = rng.choice(o); r = 1 if t.rows > 4000 else 0             # the hash join is quadratic in duplicates
                q.where.append(lit('(%s %sIN (SELECT %ss."%s" FROM %s s%s))' % (c.ref, rng.choice(['', 'NOT ']), 'DISTINCT ' if r else '', x.name, t.name, rng.choice(['', ' LIMIT 0', ' WHERE s."%s" IS NOT NULL' % x.name])), 'bool'))
        if q.kind in ('group', 'star') and not (q.kind == 'star' and rng.random() < .12):
            ks = rng.choices([1, 2, 3, 4], [45, 32, 16, 7])[0]
            for _ in range(ks):
                k = self.group_key(dims if dims and rng.random() < .65 else scope)
                if any(k.sql() == g.sql() for g in q.group): continue
                q.group.append(k); q.select.append(k); q.tags.append('exact')
        if q.kind in ('agg', 'group', 'star'):
            for _ in range(rng.choices([0, 1, 2, 3, 4, 6], [6 if q.group else 0, 30, 30, 18, 10, 6])[0]):
                n, t = self.agg(scope if rng.random() < .5 else fscope); q.select.append(n); q.tags.append(t)
            if not q.select: q.select.append(lit('count(*)')); q.tags.append('exact')
            if q.group and rng.random() < .1:
                n, t = self.agg(fscope)
                if t == 'exact': q.having.append(N(rng.choice(['({} IS NOT NULL)', '({} > 3)', '({} <= 100)', '({} <> 1)', '({} > (SELECT avg(s."id") FROM f s))']), n))
            if q.group and rng.random() < .15: q.having.append(N(rng.choice(['(count(*) > %d)' % rng.choice([0, 1, 10, 100]), '(count(*) %% 2 = 0)' % ()])))
            if q.group and rng.random() < .2 and not any(t == 'fmm' for t in q.tags):
                q.limit = self.limit(q)
                own = [i for i in range(len(q.group), len(q.select)) if q.tags[i] == 'exact']
                if own and rng.random() < .7:                      # ordered by an aggregate
                    i = rng.choice(own); q.select.insert(0, q.select.pop(i)); q.tags.insert(0, q.tags.pop(i))
        elif q.kind == 'distinct':
            q.distinct = True
            for _ in range(rng.randint(1, 3)): q.select.append(self.group_key(scope)); q.tags.append('exact')
        else:
            all_ = [c for c in scope]
            for c in rng.sample(all_, min(len(all_), rng.randint(1, 5))): q.select.append(self.col(c)); q.tags.append('exact')
            if rng.random() < .5: q.select.append(self.num(scope, 2)[0]); q.tags.append('exact')
            if rng.random() < .2: q.select.append(self.pred(scope, 1)); q.tags.append('exact')
            if rng.random() < .12:                                # rows are any, their number is not
                k = rng.choice([1, 10, 1000, 1024, 5000])
                q.outer = 'SELECT count(*) AS p0 FROM (@@ LIMIT %d) s' % k; q.outer_tags = ['exact']
            elif rng.random() < .3 and not any(c.cls == 'nested' and c.ref in [s.sql() for s in q.select] for c in all_):
                q.limit = self.limit(q)
        if rng.random() < .1 and not q.limit and not q.outer:
            q2 = Q(); q2.__dict__.update({k: copy.copy(v) for k, v in q.__dict__.items()})
            q2.where = q.where[:-1] + [self.pred(scope, 1)]
            if not q.distinct: q.union = q2
        elif rng.random() < .14 and not q.union and not q.outer:
            ex = [i for i, t in enumerate(q.tags) if t == 'exact']
            r = rng.random()
            if ex and q.kind in ('group', 'star', 'distinct'):
                if r < .5: q.outer = 'SELECT count(*) AS p0, count(s.o%d) AS p1, max(s.o%d) AS p2, min(s.o%d) AS p3 FROM (@@) s' % (ex[0], ex[-1], ex[0]); q.outer_tags = ['exact', 'exact', 'fmm', 'fmm']
                elif r < .85:
                    key, other = rng.choice(ex), rng.choice(ex)
                    w = rng.choice(['', '', ' WHERE s.o%d IS NOT NULL' % other, ' WHERE s.o%d IS NULL OR s.o%d = s.o%d' % (key, other, other)])
                    q.outer = 'SELECT s.o%d AS p0, count(*) AS p1, count(s.o%d) AS p2, max(s.o%d) AS p3 FROM (@@) s%s GROUP BY s.o%d' % (key, other, other, w, key); q.outer_tags = ['exact', 'exact', 'exact', 'fmm']
                else: q.outer = 'SELECT f.id AS p0, s.o%d AS p1 FROM f JOIN (@@) s ON f.id = s.o%d' % (ex[0], ex[-1]) if False else 'SELECT s.o%d AS p0, rank() OVER (ORDER BY s.o%d) AS p1 FROM (@@) s' % (ex[0], ex[0]); q.outer_tags = ['exact', 'exact']
        q.nan = any(c.nan for c in scope)
        return q
    def added(self, q, base):
        """What an outer join adds to rows, of which it may add many."""
        rng = self.rng
        fk, d = rng.choice(base.links)
        own, cols = [c.at('f') for c in base.cols], [c.at('d0_') for c in d.cols]
        q.kind = 'group'
        q.joins.append(lit('LEFT JOIN %s d0_ ON f."%s" = d0_."k"' % (d.name, fk)))
        if rng.random() < .5: q.where.append(self.pred(own, 1))
        for _ in range(rng.randint(1, 2)):
            k = self.group_key(own)
            if not any(k.sql() == g.sql() for g in q.group): q.group.append(k); q.select.append(k); q.tags.append('exact')
        cs = [c for c in cols if c.cls not in ('nested', 'float')]
        for _ in range(rng.randint(1, 3)):
            c = rng.choice(cs); f = rng.choice(['count', 'count', 'min', 'max'] + ['sum'] * 3 * (c.cls in ('int', 'dec')))
            q.select.append(N(f + '({})', self.col(c), cls='num')); q.tags.append('fsum' if f == 'sum' else 'exact')
        if rng.random() < .3: q.outer = 'SELECT s.o%d AS p0, count(*) AS p1 FROM (@@) s GROUP BY s.o%d' % (len(q.group), len(q.group)); q.outer_tags = ['exact', 'exact']
        q.nan = any(c.nan for c in own + cols)
        return q
    def limit(self, q):
        rng = self.rng
        return (rng.choice([0, 1, 3, 10, 100, 1000]), rng.choice([0, 0, 0, 2, 50]), [rng.choice(['', ' DESC', ' ASC NULLS FIRST', ' DESC NULLS LAST']) for _ in q.select])

# ---------------------------------------------------------------- one set

# DataFusion 55.2 answers max(a + 1), min(b) wrongly, over Parquet too, where a scan applies the filter that is made of
# min(b) alone (AggregateExec::init_dynamic_filter): the oracle goes without. The subject has to cope by itself.
ORACLE = ["SET vectile.gpu = 'off'", "SET datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown = false", "SET datafusion.execution.target_partitions = 2", "SET datafusion.execution.parquet.pruning = false",
          "SET datafusion.execution.parquet.enable_page_index = false", "SET datafusion.execution.parquet.bloom_filter_on_read = false"]

class Worker:
    def __init__(self, args):
        self.args = args; self.out = args.out
        self.work = os.path.join(args.scratch or os.path.join(args.out, 'work'), 'w%d' % args.seed)
        os.makedirs(self.work, exist_ok=True); os.makedirs(os.path.join(self.out, 'findings'), exist_ok=True)
        self.sigs = collections.Counter(); self.log = open(os.path.join(self.out, 'log-%d.txt' % args.seed), 'a')
        self.end = time.time() + args.minutes * 60
        self.shapes = collections.Counter(); self.encodings = collections.Counter(); self.errors = collections.Counter()
    def say(self, *a):
        print(time.strftime('%H:%M:%S'), *a, file=self.log, flush=True)
    def loop(self):
        k = 0
        while time.time() < self.end and (not self.args.tables or k < self.args.tables):
            seed = self.args.only if self.args.only is not None else self.args.seed * 100003 + k
            try: self.one(seed)
            except Exception:
                STATS['fuzzer errors'] += 1; self.say('FUZZER ERROR set', seed, traceback.format_exc())
            k += 1; self.save()
            if self.args.only is not None: break
        shutil.rmtree(self.work, ignore_errors=True)
    def save(self):
        STATS['peak MB'] = int(PEAK[0] * 1024)
        json.dump(dict(stats=STATS, reasons=REASONS.most_common(400), sigs=self.sigs, shapes=self.shapes, encodings=self.encodings, errors=self.errors.most_common(60)),
                  open(os.path.join(self.out, 'stats-%d.json' % self.args.seed), 'w'), indent=1)
    def one(self, seed):
        self.seed = seed
        d = os.path.join(self.work, 'set')
        s = Set(d, seed, self.args)
        for a, b, rg, pins, r in s.write():
            self.finding('convert-' + r.status + '-' + kind_of(r.err), s, seed, None, 'COPY %s row_group_rows %d %s: %s' % (a, rg, pins, shorten(r.err, 1500)))
            return
        STATS['sets'] += 1; STATS['rows'] += sum(t.rows for t in s.tables); STATS['source ' + s.fmt] += 1
        if STATS['sets'] % 4 == 1: self.inspect(s)
        gen = Gen(s, seed + 1)
        queries = []
        for t in s.tables:                                     # the round trip first
            q = Q(); q.kind = 'roundtrip'; q.frm = t.name + ' f'; q.select = [lit('f."%s"' % c.name) for c in t.cols]; q.tags = ['exact'] * len(t.cols)
            queries.append(q)
        while len(queries) < self.args.queries:
            q = gen.query()
            if sum(t.rows for t in s.tables) > 60000 and q.kind == 'rows' and not q.limit and gen.rng.random() < .6: continue
            queries.append(q)
            while q and q.joins and gen.rng.random() < .5:
                q = gen.similar(q)
                if q: queries.append(q); STATS['similar queries'] += 1
        ids = [('q%d' % i, q.sql(), 'copy') for i, q in enumerate(queries)]
        oracle = run_many(self.args.bin, s.views(s.src), ORACLE, ids, mk(d, 'o'), self.args.hang)
        # what the oracle rejects when planning tells nothing
        good = [(id, sql, w) for (id, sql, w) in ids if not (oracle[id][0] == 'error' and kind_of(oracle[id][1]) in ('plan', 'notimpl') and self.args.skip)]
        fine = [x for x in good if oracle[x[0]][0] == 'ok']          # the first error ends a process: those last
        stmts = list(fine)
        if self.args.mode == 'gpu':
            stmts += [(id + 'w', sql, 'copy') for id, sql, _ in fine]
        stmts += [(id + 'e', 'EXPLAIN ' + sql, 'show') for id, sql, _ in good if oracle[id][0] == 'ok'] if self.args.mode == 'gpu' else []
        if self.args.mode == 'gpu': stmts += [(id + 'a', 'EXPLAIN ANALYZE VERBOSE ' + sql, 'show') for id, sql, _ in good if oracle[id][0] == 'ok' and gen.rng.random() < .5]
        if self.args.twice: stmts += [(id + k, sql, 'show') for id, sql, _ in fine for k in 'yz']
        stmts += [x for x in good if oracle[x[0]][0] != 'ok']
        t0 = time.time()
        subject = run_many(self.args.subject, s.views(s.vec), s.settings, stmts, mk(d, 's'), self.args.hang)
        self.say('set', seed, s.fmt, [(t.name, t.rows) for t in s.tables], 'queries', len(queries), 'ok', sum(1 for i, _, _ in ids if oracle[i][0] == 'ok'), '%.1fs' % (time.time() - t0))
        while BIG:
            rss, script = BIG.pop()
            self.finding('memory', s, seed, None, 'a process took %.1f GiB' % rss, script=[script])
        opening = [v for v in subject.values() if v[0] == 'error' and 'cannot open table' in v[1]]
        if opening: self.finding('open', s, seed, queries[0], shorten(opening[0][1])); return
        for i, q in enumerate(queries):
            id = 'q%d' % i
            if id not in subject: STATS['skipped'] += 1; self.errors['skipped ' + shorten(oracle[id][1], 120)] += 1; continue
            STATS['queries'] += 1; self.shapes[q.kind] += 1
            if q.joins or ' , ' in q.frm: STATS['with joins'] += 1
            for suffix in ([''] if self.args.mode == 'cpu' else ['', 'w']):
                if id + suffix not in subject: continue
                v = self.judge(s, q, id, oracle[id], subject.get(id + suffix, ('missing', '')), suffix, d)
                if v:
                    self.report(s, seed, q, i, v, suffix, queries, oracle[id], subject.get(id + suffix), d)
                    break
            first, second = subject.get(id + 'y'), subject.get(id + 'z')
            if first and second and set(q.all_tags()) == {'exact'}:
                STATS['answered twice'] += 1
                of = lambda r: (r[0], kind_of(r[1]) if r[0] != 'ok' else sorted(re.sub(r'-0\.0\b', '0.0', r[1]).splitlines()))
                if of(first) != of(second): self.finding('twice', s, seed, q, 'the second answer differs: %s / %s' % (first[1][:700], second[1][:700]), script=[q.sql(), q.sql()])
            bad = self.explain(q, subject.get(id + 'e'), subject.get(id + 'a'))
            if bad:
                self.sigs['gpu-failed ' + bad] += 1; self.say('GPU FAILED', bad, 'set', seed, 'query', i)
                if self.sigs['gpu-failed ' + bad] == 1: self.say(self.blame(s, queries, bad, d))
                if self.sigs['gpu-failed ' + bad] <= self.args.keep: self.finding('gpu-failed ' + bad, s, seed, q, subject[id + 'a'][1][-6000:], script=[x.sql() for x in queries[:i + 1]])
    def explain(self, q, e, a):
        if e and e[0] == 'ok':
            t = e[1]
            STATS['explained'] += 1
            agg, scan = 'GpuAggregateExec' in t, bool(re.search(r'\bgpu=', t))
            STATS['plans with GpuAggregateExec'] += agg; STATS['plans with gpu= scans'] += scan; STATS['plans with either'] += agg or scan
            if agg and 'joins=[' in t: STATS['plans with joins in GpuAggregateExec'] += 1
            if agg and 'gby=[' in t and 'gby=[]' not in t: STATS['plans with groups in GpuAggregateExec'] += 1
            for m in re.finditer(r'(not_on_gpu|not_fused)=([^\n]*)', t):
                REASONS[m.group(1) + ': ' + reason(m.group(2))] += 1
        if a and a[0] == 'ok':
            t = a[1]
            gpu = [unit(x) for x in re.findall(r'gpu_rows=([\d.]+ ?[KMB]?)', t)]
            fb = [x for x in re.findall(r'fallbacks(?:\{.*?\})?=(\d+)', t) if int(x) > 0]
            STATS['analyzed'] += 1; STATS['analyzed with gpu_rows > 0'] += any(g > 0 for g in gpu)
            STATS['analyzed with fallbacks'] += bool(fb)
            why = [m.group(1) for m in re.finditer(r'fallbacks\{.*?reason=(.*?)\}=', t, re.S)]
            for x in set(reason(x) for x in why): REASONS['fallback: ' + x] += 1
            for x in why:
                if re.search(r'does not compile|CUDA_ERROR| failed|orrupt|beyond|nternal|damaged|invalid', x): return reason(x)[:90]
        elif a: REASONS['EXPLAIN ANALYZE failed: ' + shorten(a[1], 100)] += 1
    def magnitude(self, s, q, d):
        def f(i):
            try:
                m = mk(d, 'm')
                r = run_many(self.args.bin, s.views(s.src), ORACLE, [('m', q.sql(True), 'copy')], m, self.args.hang)
                if r['m'][0] != 'ok': return None
                fa = os.path.join(m, 'res', 'm.parquet'); t = pq.read_table(fa)
                tags = q.all_tags()
                exact = [j for j in range(t.num_columns) if tags[j] == 'exact' or not pa.types.is_floating(t.schema.field(j).type)]
                if exact:
                    x = pa.table({'c%d' % j: norm_col(t.column(j)) for j in exact}); o = pc.sort_indices(x, sort_keys=[('c%d' % j, 'ascending') for j in exact])
                    return floats_of(t.column(i).take(o))[0]
                return floats_of(t.column(i))[0]
            except Exception: return None
        return f
    def judge(self, s, q, id, o, u, suffix, d, count=True):
        """None, or (signature, text)."""
        def note(k):
            if count: STATS[k] += 1
        if u[0] == 'crash' or (u[0] == 'hang' and o[0] != 'hang'): return (u[0], shorten(u[1], 1500))
        if o[0] in ('crash', 'hang'):
            note('oracle ' + o[0]); return ('oracle-' + o[0], shorten(o[1], 1500)) if count and o[0] == 'crash' else None
        if o[0] == 'ok' and u[0] == 'ok':
            MM_NAN[0] = q.nan
            try: v, text = compare(os.path.join(d, 'o', 'res', id + '.parquet'), os.path.join(d, 's', 'res', id + suffix + '.parquet'), q.all_tags(), self.magnitude(s, q, d))
            except Exception as e: note('compare failed'); return ('compare-failed', traceback.format_exc()[-600:])
            note('compared'); note('compared: ' + v)
            if count and os.path.exists(os.path.join(d, 'o', 'res', id + '.parquet')) and pq.read_metadata(os.path.join(d, 'o', 'res', id + '.parquet')).num_rows > 0: note('compared, with rows')
            if v in ('equal', 'tolerance', 'magnitude', 'zero', 'nanminmax'): return None
            return (v, text)
        ko = kind_of(o[1]) if o[0] == 'error' else None
        ku = kind_of(u[1]) if u[0] == 'error' else None
        if u[0] == 'missing': note('missing'); return None
        if ko and ku:
            note('both fail'); note('both fail: ' + ko)
            if count: self.errors['both: ' + re.sub(r'\d+', '#', shorten(o[1], 140))] += 1
            if ko == ku or (ko in ROWERR and ku in ROWERR): return None
            if {ko, ku} & {'internal', 'panic'} and ko != ku: return ('error-kinds-%s-%s' % (ko, ku), shorten(o[1]) + '\n' + shorten(u[1]))
            note('both fail, differently'); 
            if count: self.errors['differently: %s / %s' % (shorten(o[1], 140), shorten(u[1], 140))] += 1
            return None
        k = ko or ku
        if k in ROWERR:
            note('only one fails on a row (known class): ' + ('oracle' if ko else 'subject'))
            if count: self.errors['one (%s): %s' % ('oracle' if ko else 'subject', re.sub(r'\d+', '#', shorten(o[1] if ko else u[1], 140)))] += 1
            return None
        return ('error-only-' + ('oracle' if ko else 'subject') + '-' + k, shorten(o[1] if ko else u[1], 1200))
    # triage
    def rerun(self, s, q, dir, settings=None, base=None, sql=None):
        """Oracle and subject in processes of their own; the verdict."""
        o = run_many(self.args.bin, s.views(s.src), ORACLE, [('x', sql or q.sql(), 'copy')], mk(dir, 'o'), self.args.hang)['x']
        u = run_many(self.args.subject, s.views(s.vec), settings or s.settings, [('x', sql or q.sql(), 'copy'), ('xw', sql or q.sql(), 'copy')] if self.args.mode == 'gpu' else [('x', sql or q.sql(), 'copy')], mk(dir, 's'), self.args.hang)
        v = self.judge(s, q, 'x', o, u.get('x', ('missing', '')), '', dir, count=False)
        if not v and self.args.mode == 'gpu': v = self.judge(s, q, 'x', o, u.get('xw', ('missing', '')), 'w', dir, count=False)
        return v
    def report(self, s, seed, q, i, v, suffix, queries, o, u, d):
        sig = v[0]
        full = sig + '/' + q.kind + ('/join' if q.joins else '') if not sig.startswith(('error', 'crash', 'oracle')) else sig + ' ' + re.sub(r'[0-9]+|/tmp\S+|"\w+"|\w+\."?\w+"?', '#', shorten(v[1], 110)).replace('\n', ' ')
        self.sigs[full] += 1
        self.say('FINDING', full, 'set', seed, 'query', i, v[1][:300].replace('\n', ' '))
        if self.sigs[full] > self.args.keep: return
        dir = mk(self.work, 'min')
        if sig == 'hang':                                 # slow in both is DataFusion's matter
            t0 = time.time()
            run_many(self.args.bin, s.views(s.src), ORACLE, [('x', q.sql(), 'copy')], mk(dir, 'o'), self.args.hang)
            if time.time() - t0 > self.args.hang / 5:
                STATS['slow in both'] += 1; self.sigs[full] -= 1; self.say('slow in both: %.1fs' % (time.time() - t0), q.sql()); return
        again = self.rerun(s, q, dir)
        extra = []
        if not again:
            extra.append('NOT reproduced alone, in a process of its own (suffix %r: w = second, warm run)' % suffix)
            self.finding(full, s, seed, q, v[1], extra, script=[x.sql() for x in queries[:i + 1]]); return
        if sig in ('rows', 'values', 'fsum', 'schema') and self.oracle_alone(s, q, dir):
            full = 'oracle-wrong ' + full                   # the same rows in memory give the subject's answer
            self.sigs[full] += 1; self.sigs[sig + '/' + q.kind + ('/join' if q.joins else '')] -= 1; STATS['oracle wrong, tables in memory agree with the subject'] += 1
            self.say(full, q.sql())
            if self.sigs[full] > 1: return
            extra.append('DataFusion over the SOURCE FILES is wrong: their rows in a MemTable agree with the subject')
        if self.args.mode == 'gpu':
            off = self.rerun(s, q, dir, ["SET vectile.gpu = 'off'"]); extra.append('with vectile.gpu = off: ' + (off[0] + ' ' + off[1][:200] if off else 'agrees with the oracle'))
        one = self.rerun(s, q, dir, s.settings + ["SET vectile.pushdown_filters = false"]); extra.append('with pushdown_filters = false: ' + (one[0] if one else 'agrees'))
        one = self.rerun(s, q, dir, s.settings + ["SET datafusion.execution.target_partitions = 1"]); extra.append('with target_partitions = 1: ' + (one[0] if one else 'agrees'))
        q, s2, v2 = self.minimise(s, q, again, dir)
        extra.append(self.memory_oracle(s2, q, dir))
        self.finding(full, s2, seed, q, v2[1], extra)
    def blame(self, s, queries, bad, d):
        """A failed kernel spoils its process: which query fails in a process of its own?"""
        end = time.time() + 90; found = []
        for i, q in enumerate(queries):
            if time.time() > end or len(found) > 2: break
            r = run_many(self.args.subject, s.views(s.vec), s.settings, [('x', 'EXPLAIN ANALYZE VERBOSE ' + q.sql(), 'show')], mk(d, 's'), self.args.hang)['x']
            if r[0] in ('crash', 'hang') or (r[0] == 'ok' and re.search(r'reason=[^}]*(does not compile|CUDA_ERROR| failed)', r[1])):
                found.append(i); self.finding('gpu-failed-alone ' + bad, s, self.seed, q, shorten(r[1], 8000) if r[0] != 'ok' else '\n'.join(x[:1500] for x in r[1].splitlines() if 'reason=' in x), ['query %d of the set, in a process of its own' % i])
        return 'queries that fail alone: %s' % found
    def oracle_alone(self, s, q, dir):
        try:
            make = ["SET vectile.gpu = 'off'"] + ["CREATE TABLE %s AS SELECT * FROM v_%s" % (t.name, t.name) for t in s.tables]
            o = run_many(self.args.bin, [('v_' + n, p) for n, p in s.views(s.src)], make, [('x', q.sql(), 'copy')], mk(dir, 'o'), self.args.hang)['x']
            u = run_many(self.args.subject, s.views(s.vec), s.settings, [('x', q.sql(), 'copy')], mk(dir, 's'), self.args.hang)['x']
            return o[0] == 'ok' and u[0] == 'ok' and self.judge(s, q, 'x', o, u, '', dir, count=False) is None
        except Exception: return False
    def memory_oracle(self, s, q, dir):
        """The query over tables in memory made of the Vectile files: tells reading from planning."""
        try:
            make = ["SET vectile.gpu = 'off'"] + ["CREATE TABLE %s AS SELECT * FROM v_%s" % (t.name, t.name) for t in s.tables]
            r = run_many(self.args.subject, [('v_' + n, p) for n, p in s.views(s.vec)], make, [('x', q.sql(), 'copy')], mk(dir, 's'), self.args.hang)['x']
            o = run_many(self.args.bin, s.views(s.src), ORACLE, [('x', q.sql(), 'copy')], mk(dir, 'o'), self.args.hang)['x']
            v = self.judge(s, q, 'x', o, r, '', dir, count=False)
            w = ''
            make = ["SET vectile.gpu = 'off'"] + ["CREATE TABLE %s AS SELECT * FROM v_%s" % (t.name, t.name) for t in s.tables]
            r2 = run_many(self.args.bin, [('v_' + n, p) for n, p in s.views(s.src)], make, [('x', q.sql(), 'copy')], mk(dir, 's'), self.args.hang)['x']
            v2 = self.judge(s, q, 'x', o, r2, '', dir, count=False)
            return 'rows of the Vectile files in a MemTable: %s; rows of the source files in a MemTable: %s (against the oracle)' % (v[0] + ' ' + v[1][:200] if v else 'agree', v2[0] + ' ' + v2[1][:200] if v2 else 'agree')
        except Exception as e: return 'memory oracle failed: %s' % e
    def minimise(self, s, q, v, dir):
        end = time.time() + self.args.shrink; tries = [0]
        def holds(s, q):
            tries[0] += 1
            w = self.rerun(s, q, dir)
            return w if w and w[0] == v[0] else None
        changed = True
        while changed and time.time() < end:
            changed = False
            for c in shrinks(q):
                if time.time() > end: break
                w = holds(s, c)
                if w: q, v, changed = c, w, True; break
        # rows: halves of each table's files, as long as it holds
        s2 = copy.copy(s); s2.tables = [copy.copy(t) for t in s.tables]; s2.dir = mk(self.work, 'rows'); k = 0
        def try_tables(tables):
            x = copy.copy(s2); x.tables = tables; k_dir = mk(self.work, 'rows%d' % (tries[0] % 2)); x.dir = k_dir
            if x.write(): return None
            w = holds(x, q)
            return (x, w) if w else None
        sql = q.sql()
        used = [t for t in s2.tables if re.search(r'\b%s\b' % t.name, sql)]
        first = try_tables(used)
        if first:
            s2, v = first; changed = True
            while changed and time.time() < end:
                changed = False
                for ti, t in enumerate(s2.tables):
                    for c in smaller(t):
                        if time.time() > end: break
                        r = try_tables(s2.tables[:ti] + [c] + s2.tables[ti + 1:])
                        if r: s2, v = r; changed = True; break
                    if changed: break
            # the last success must be on disk for what follows
            s2.dir = mk(self.work, 'final'); s2.write()
            return q, s2, v
        s.write()
        return q, s, v
    def finding(self, sig, s, seed, q, text, extra=(), script=None):
        STATS['findings'] += 1
        name = re.sub(r'[^\w-]+', '_', sig)[:60] + '-%d-%d' % (seed, STATS['findings'])
        d = os.path.join(self.out, 'findings', name); os.makedirs(d, exist_ok=True)
        sql = q.sql() if q else ''
        parts = []; size = 0
        for t in s.tables:
            for i, p in enumerate(t.parts):
                b = pa.BufferOutputStream()
                pq.write_table(p, b, compression='zstd') if s.fmt == 'parquet' else write_ipc(p, b)
                raw = b.getvalue().to_pybytes(); size += len(raw)
                parts.append((t.name, i, raw, t.layout[i]))
        with open(os.path.join(d, 'report.txt'), 'w') as f:
            f.write('signature: %s\nset: --only %d --mode %s --queries %d\nsettings: %s\n%s\n%s\n\nSQL:\n%s\n' % (sig, seed, self.args.mode, self.args.queries, '; '.join(s.settings), text, '\n'.join(extra), sql))
            for t in s.tables:
                f.write('\n%s (%d rows in %d files, %s): %s\n' % (t.name, t.rows if False else sum(len(p) for p in t.parts), len(t.parts), t.layout, ', '.join('%s %s' % (c.name, c.t) for c in t.cols)))
                if sum(len(p) for p in t.parts) <= 12:
                    for p in t.parts: f.write('\n'.join('  %s: %s' % (c, [raw_value(x) for x in p.column(c).combine_chunks()]) for c in p.column_names)[:3000] + '\n')
        if script: open(os.path.join(d, 'script.sql'), 'w').write(';\n'.join(script) + ';\n')
        if size < 300000:
            with open(os.path.join(d, 'repro.py'), 'w') as f:
                f.write(REPRO % dict(parts=repr([(a, i, base64.b64encode(r).decode(), l) for a, i, r, l in parts]), fmt=s.fmt, settings=repr(s.settings), oracle=repr(ORACLE), sql=repr(sql), bin=self.args.bin))
        self.save()

def write_ipc(p, b):
    with ipc.new_file(b, p.schema) as w:
        w.write_table(p)

REPRO = '''#!/usr/bin/env python3
# python3 repro.py [BIN]: writes the tables, converts them, runs the query over both
import base64, os, subprocess, sys, tempfile
BIN = sys.argv[1] if len(sys.argv) > 1 else %(bin)r
PARTS = %(parts)s
FMT, SETTINGS, ORACLE = %(fmt)r, %(settings)s, %(oracle)s
SQL = %(sql)s
d = tempfile.mkdtemp()
for t, i, data, (rg, pins) in PARTS:
    for k in ('src', 'vec'): os.makedirs(os.path.join(d, k, t), exist_ok=True)
    a, b = os.path.join(d, 'src', t, 'p%%d.%%s' %% (i, FMT)), os.path.join(d, 'vec', t, 'p%%d.vectile' %% i)
    open(a, 'wb').write(base64.b64decode(data))
    o = ["row_group_rows %%d" %% rg] + ["'encoding.%%s' '%%s'" %% x for x in pins.items()]
    subprocess.run([BIN, 'sql', "SET datafusion.execution.target_partitions = 1; SET vectile.gpu = 'off'; COPY (SELECT * FROM '%%s') TO '%%s' STORED AS VECTILE OPTIONS (%%s)" %% (a, b, ', '.join(o))], check=True)
names = sorted({p[0] for p in PARTS})
for k, s in (('src', ORACLE), ('vec', SETTINGS)):
    print('--', k, s, flush=True)
    f = os.path.join(d, k + '.sql'); open(f, 'w').write(''.join(x + ';\\n' for x in s) + SQL + ';\\n')
    subprocess.run([BIN, 'sql', '-f', f] + [x for n in names for x in ('-t', '%%s=%%s/' %% (n, os.path.join(d, k, n)))])
print('files in', d)
'''

def mk(*p):
    d = os.path.join(*p); os.makedirs(d, exist_ok=True); return d

def unit(x):
    m = re.match(r'([\d.]+) ?([KMB]?)', x); return float(m.group(1)) * {'': 1, 'K': 1e3, 'M': 1e6, 'B': 1e9}[m.group(2)]

def reason(t):
    t = t.split('","')[0].strip().strip('"')
    t = re.sub(r'\bf\."?[\w ]+"?|\bo\d+@\d+|\w+@\d+', 'COL', t)
    t = re.sub(r"\d+(\.\d+)?", '#', t)
    m = re.match(r'(no kernel for) (.*?)(, which is .*)?$', t)
    if m: t = m.group(1) + ' ' + m.group(2)[:50] + (m.group(3) or '')
    return t[:130]

def shrinks(q):
    """Smaller queries."""
    def dup(): return copy.deepcopy(q)
    if q.outer:
        c = dup(); c.outer = None; yield c
    if q.union is not None:
        c = dup(); c.union = None; yield c
        c = copy.deepcopy(q.union); c.union = None; yield c
    if q.limit:
        c = dup(); c.limit = None; yield c
    for i in range(len(q.having)):
        c = dup(); del c.having[i]; yield c
    for i in range(len(q.where)):
        c = dup(); del c.where[i]; yield c
    for i in range(len(q.joins)):
        c = dup(); del c.joins[i]; yield c
    if len(q.select) > 1:
        for i in reversed(range(len(q.select))):
            c = dup(); s = c.select.pop(i); c.tags.pop(i)
            if c.limit: c.limit = c.limit[:2] + ([d for j, d in enumerate(c.limit[2]) if j != i],)
            c.group = [g for g in c.group if g.sql() != s.sql()]; yield c
    for where in ('where', 'select'):
        for i, n in enumerate(getattr(q, where)):
            if where == 'select' and any(g.sql() == n.sql() for g in q.group): continue
            for path, m in n.walk():
                if not m.kids: continue
                for k, kid in enumerate(m.kids):
                    if kid.cls and kid.cls == m.cls:
                        c = dup(); lst = getattr(c, where)
                        if not path: lst[i] = copy.deepcopy(kid)
                        else:
                            p = lst[i]
                            for x in path[:-1]: p = p.kids[x]
                            p.kids[path[-1]] = copy.deepcopy(kid)
                        yield c
                if m.fmt.endswith(' FILTER (WHERE {})'):
                    c = dup(); lst = getattr(c, where)
                    x = copy.deepcopy(m); x.fmt = x.fmt[:-len(' FILTER (WHERE {})')]; x.kids.pop()
                    if x.absfmt: x.absfmt = x.absfmt[:-len(' FILTER (WHERE {})')]
                    if not path: lst[i] = x; yield c

def smaller(t):
    """Copies of a table with fewer files, rows or columns."""
    def of(parts, layout):
        c = copy.copy(t); c.parts, c.layout = parts, layout; return c
    if len(t.parts) > 1:
        for i in range(len(t.parts)): yield of(t.parts[:i] + t.parts[i + 1:], t.layout[:i] + t.layout[i + 1:])
    for i, p in enumerate(t.parts):
        n = len(p)
        if n > 1:
            cuts = [(0, n // 2), (n // 2, n)] + ([(0, n * 3 // 4), (n // 4, n)] if n < 5000 else []) + ([(0, n - 1), (1, n)] if n < 12 else [])
            for a, b in cuts:
                yield of(t.parts[:i] + [p.slice(a, b - a)] + t.parts[i + 1:], t.layout)
    if any(l[1] for l in t.layout): yield of(t.parts, [(rg, {}) for rg, _ in t.layout])

def inspect(self, s):
    try:
        for t in s.tables:
            for i in range(len(t.parts)):
                r = subprocess.run([self.args.bin, 'inspect', os.path.join(s.vec, t.name, 'p%d.vectile' % i), '--format', 'json'], capture_output=True, text=True, timeout=60)
                for c in json.loads(r.stdout)['columns']:
                    for h in c['chunks']: self.encodings[re.sub(r'\b(\w+)\b', r'\1', h['encoding'])[:40]] += 1
    except Exception as e: self.say('inspect', e, shorten(r.stderr, 200))
Worker.inspect = inspect

def total(out):
    tot = dict(stats=collections.Counter(), reasons=collections.Counter(), sigs=collections.Counter(), shapes=collections.Counter(), encodings=collections.Counter(), errors=collections.Counter())
    for f in glob.glob(os.path.join(out, 'stats-*.json')):
        j = json.load(open(f))
        for k in tot:
            items = j[k].items() if isinstance(j[k], dict) else j[k]
            for a, b in items: tot[k][a] = max(tot[k][a], b) if a in ('peak MB', 'max rss') else tot[k][a] + b
    json.dump({k: dict(v.most_common()) for k, v in tot.items()}, open(os.path.join(out, 'stats.json'), 'w'), indent=1)
    lines = []
    for k in ('stats', 'sigs', 'shapes', 'errors', 'reasons', 'encodings'):
        lines.append('== ' + k); lines += ['%8d  %s' % (b, a) for a, b in tot[k].most_common(45)]
    st = tot['stats']
    if st['explained']: lines.append('fused share: %.1f%% of %d plans have GpuAggregateExec, %.1f%% anything on the GPU; of %d analyzed %.1f%% had gpu_rows > 0, %.1f%% fallbacks' % (
        100 * st['plans with GpuAggregateExec'] / st['explained'], st['explained'], 100 * st['plans with either'] / st['explained'], st['analyzed'],
        100 * st['analyzed with gpu_rows > 0'] / max(1, st['analyzed']), 100 * st['analyzed with fallbacks'] / max(1, st['analyzed'])))
    text = '\n'.join(lines) + '\n'
    open(os.path.join(out, 'summary.txt'), 'w').write(text)
    return text

def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True); p.add_argument('--subject', help='another program that answers `sql` over .vectile files'); p.add_argument('--seed', type=int, default=1); p.add_argument('--tables', type=int, default=0)
    p.add_argument('--queries', type=int, default=60); p.add_argument('--minutes', type=float, default=5); p.add_argument('--mode', choices=['cpu', 'gpu'], default='cpu')
    p.add_argument('--out', required=True); p.add_argument('--workers', type=int, default=1); p.add_argument('--hang', type=float, default=60)
    p.add_argument('--only', type=int, help='just the table set with this seed, as reports name it'); p.add_argument('--keep', type=int, default=4, help='findings of a signature to minimise, per worker')
    p.add_argument('--shrink', type=float, default=60, help='seconds to spend on making a finding smaller'); p.add_argument('--scratch', help='where tables are written (default OUT/work)')
    p.add_argument('--quiet', action='store_true'); p.add_argument('--twice', action='store_true', help='have each query answered twice in a session: the second time, its plan may be a kept one')
    p.add_argument('--skip', type=int, default=1, help='leave out what the oracle fails to plan')
    a = p.parse_args()
    a.bin, a.subject, a.out = os.path.abspath(a.bin), os.path.abspath(a.subject or a.bin), os.path.abspath(a.out)
    os.makedirs(a.out, exist_ok=True)
    if a.scratch: a.scratch = os.path.abspath(a.scratch)
    if a.workers > 1:
        args = [x for x in sys.argv[1:]]
        i = args.index('--workers'); del args[i:i + 2]
        if '--seed' in args: i = args.index('--seed'); del args[i:i + 2]
        procs = [subprocess.Popen([sys.executable, os.path.abspath(__file__)] + args + ['--seed', str(a.seed + w), '--workers', '1', '--quiet'], start_new_session=True) for w in range(a.workers)]
        limit = time.time() + a.minutes * 60 + 120
        for q in procs:
            try: q.wait(max(1, limit - time.time()))
            except subprocess.TimeoutExpired: os.killpg(q.pid, signal.SIGKILL); q.wait(); print('worker', q.pid, 'was late')
    else:
        w = Worker(a); w.loop(); w.save()
    if not a.quiet: print(total(a.out))

if __name__ == '__main__':
    main()
