"""Columns of generated tables: their types, values and literals."""
import copy, datetime, math
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


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
