"""Small tables and the queries in which wrong answers have hidden: SQLite says what the answer is.

A set has a fact table `f`, dimensions `d`, `e` and `g`, a list `n`, a table `t` that is declared sorted, and edges of
a graph. Columns are integers and text with nulls, for which SQLite and DataFusion agree. Each query comes with
variants that have the same answer (see `variants`). All of them run on the CPU, and in GPU mode on the GPU as well.
"""
import copy, csv, io, os, random, re, shutil, sqlite3, time
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from columns import quote
from running import STATS, kernels_of, kind_of, mk, run_many, shorten

NAMES = ['a', 'b', 'c', 'alpha', 'high', 'highest', 'low', '', 'x_y', '100%', "o'neil", 'naïve', 'Zz', '日本']
NULLS = [' NULLS FIRST', ' NULLS LAST']
OFFSET = '  OFFSET'                                        # without LIMIT

# ---------------------------------------------------------------- tables

class Table:
    def __init__(self, name, columns, row_group_rows, order=None):
        self.name, self.data, self.row_group_rows, self.order, self.files = name, pa.table(columns), row_group_rows, order, 1

def ints(values, type=pa.int64(), nulls=None):
    return pa.array(np.asarray(values, np.int64), mask=nulls).cast(type)

def words(g, pool, n, nulls):
    return pa.array([pool[i] for i in g.integers(0, len(pool), n)], pa.string(), mask=nulls)

def make_tables(rng, g):
    """Tables by name."""
    key = rng.choice([pa.int32(), pa.int64(), pa.int64()])
    mask = lambda n, share: (g.random(n) < share) if share and n else None
    few = rng.sample(NAMES, rng.randint(2, 6))
    n, keys = rng.choice([300, 1500, 2500, 5000]), rng.choice([5, 12, 12, 40, 40])
    rows = lambda: rng.choice([700, 1024, 2048, 262144])
    tables = [Table('f', {
        'v': ints(np.arange(n)), 'k': ints(np.arange(n) % keys if rng.random() < .5 else g.integers(0, keys + 1, n), key, mask(n, rng.choice([0, 0, .1]))),
        'x': ints(g.integers(0, rng.choice([3, 10]), n)), 'w': ints(g.integers(-50, 50, n), pa.int32(), mask(n, rng.choice([0, .2]))),
        's': words(g, few, n, mask(n, rng.choice([0, .2])))}, rows())]
    def dimension(name, second, alike):
        m = keys + rng.choice([-2, -1, 0, 1])
        if rng.random() < .06: m = 0
        k = np.arange(m)
        if rng.random() < .5: g.shuffle(k)
        if rng.random() < .2 and m: k = np.concatenate([k, k[:max(1, m // 3)]])
        m = len(k)
        share = rng.choice([0, .2, .4])
        return Table(name, {
            'k': ints(k, key), 'name': words(g, few if alike else rng.sample(NAMES, 4), m, mask(m, share)),
            'e': ints(g.integers(0, second, m), key, mask(m, rng.choice([0, .2]))), 'y': ints(g.integers(0, 5, m), pa.int32(), mask(m, rng.choice([0, 0, .2])))}, rows())
    second = 3 if keys < 12 else rng.choice([3, 6])       # the device makes lookups of a table that has fewer rows than the next
    tables.append(dimension('d', second + 2, rng.random() < .5))
    ids = np.arange(second)
    tables.append(Table('e', {'id': ints(ids, key), 'name': words(g, rng.sample(NAMES, 3), second, mask(second, rng.choice([0, .5, .5, .5]))), 'z': ints(g.integers(0, 9, second), key, mask(second, .3))}, rows()))
    m = keys * rng.choice([1, 3])
    tables.append(Table('g', {'k': ints(g.integers(0, keys, m), key, mask(m, rng.choice([0, .1]))), 'q': ints(g.integers(-9, 9, m), pa.int32(), mask(m, rng.choice([0, .2]))), 'name': words(g, few, m, mask(m, .2))}, rows()))
    m = rng.choice([0, 1, 3, 3, 5, 5])
    nulls = mask(m, rng.choice([0, .5, .5, .5]))
    if nulls is not None: nulls[0] = True
    tables.append(Table('n', {'y': ints(g.integers(0, 9, m), key, nulls)}, rows()))
    m = rng.choice([200, 3000, 9000, 20000])
    ts = np.arange(m) if rng.random() < .8 else np.sort(g.integers(0, m // 3, m))
    tables.append(Table('t', {'ts': ints(ts), 'x': ints(np.arange(m)[::-1]) if rng.random() < .75 else ints(g.permutation(m)), 'k': ints(ts % rng.choice([7, keys, 100, 3000]), key)},
                        rng.choice([700, 1024, 1024, 4096]), rng.choice(['ts ASC', 'ts ASC', 'x DESC']) if rng.random() < .9 else None))
    t = tables[-1]
    if t.order and t.order.startswith('x') : t.order = 'x DESC' if t.data['x'].to_pylist() == sorted(t.data['x'].to_pylist(), reverse=True) else 'ts ASC'
    t.files = rng.choice([1, 1, 2, 3])
    m = rng.choice([4, 9])
    pairs = sorted({(int(a), int(a + b)) for a, b in zip(g.integers(1, 8, m), g.integers(1, 3, m))})
    tables.append(Table('edges', {'parent': ints([p for p, _ in pairs]), 'child': ints([c for _, c in pairs])}, rows()))
    return tables

# ---------------------------------------------------------------- queries

class Column:
    def __init__(self, ref, kind, values): self.ref, self.kind, self.values = ref, kind, values

class Query:
    """A query in parts; `base` is what it selects from, in place of a table, and `joins` come after it."""
    def __init__(self):
        self.kind, self.select, self.merges, self.base, self.joins, self.where, self.group, self.having = '', [], [], 'f', [], [], [], []
        self.distinct, self.order, self.limit, self.wrap, self.raw, self.extra = False, [], None, None, None, None
        self.same = None                                   # a text and what SQLite gets in its place
    @property
    def ordered(self): return bool(self.order) and self.wrap is None
    def core(self, extra=None, joins=None):
        if self.raw: return self.raw
        select = ', '.join('%s AS o%d' % (x, i) for i, x in enumerate(self.select))
        s = 'SELECT %s%s FROM %s' % ('DISTINCT ' if self.distinct else '', select, joins or ' '.join([self.base] + [j[3] for j in self.joins]))
        where = self.where + ([extra] if extra else [])
        if where: s += ' WHERE ' + ' AND '.join(where)
        if self.group: s += ' GROUP BY ' + ', '.join(self.group)
        if self.having: s += ' HAVING ' + ' AND '.join(self.having)
        return s
    def sql(self):
        s = self.core()
        if self.order: s += ' ORDER BY ' + ', '.join(self.order)
        if self.limit is not None: s += ' LIMIT %d' % self.limit
        return self.wrap.replace('@@', s) if self.wrap else s
    def shrinks(self):
        if self.raw: return
        for part in ('where', 'having', 'joins', 'select'):
            items = getattr(self, part)
            for i in range(len(items)):
                if part == 'select' and (len(items) == 1 or self.wrap or self.order or self.group and i < len(self.group)): continue
                if part == 'joins':
                    rest = copy.copy(self); rest.joins = items[:i] + items[i + 1:]
                    if any(' %s.' % items[i][1] in ' ' + rest.sql().replace('(', ' ') for _ in [0]): continue
                c = copy.copy(self); setattr(c, part, items[:i] + items[i + 1:])
                if part == 'select' and c.merges: c.merges = c.merges[:i] + c.merges[i + 1:]
                yield c
        if self.group and not self.wrap:
            for i in range(len(self.group)):
                if len(self.select) == 1: continue
                c = copy.copy(self); c.group = self.group[:i] + self.group[i + 1:]; c.select = self.select[:i] + self.select[i + 1:]; c.merges = self.merges[:i] + self.merges[i + 1:]; yield c

class Maker:
    def __init__(self, rng, tables):
        self.rng, self.tables, self.constants = rng, {t.name: t for t in tables}, []
    # values and predicates
    def columns(self, table, alias):
        out = []
        for name, c in zip(self.tables[table].data.column_names, self.tables[table].data.columns):
            out.append(Column('%s.%s' % (alias, name), 'text' if pa.types.is_string(c.type) else 'int', [v for v in c.to_pylist()[:200] if v is not None]))
        return out
    def literal(self, c):
        v = self.rng.choice(c.values) if c.values and self.rng.random() < .9 else (self.rng.choice(NAMES) if c.kind == 'text' else self.rng.randint(-3, 60))
        return quote(v) if c.kind == 'text' else str(v) if v >= 0 else '(%d)' % v
    def predicate(self, scope, depth=1, subqueries=True):
        rng = self.rng
        if depth and rng.random() < .5:
            a, b = self.predicate(scope, depth - 1, subqueries), self.predicate(scope, depth - 1, subqueries)
            return rng.choice(['(%s AND %s)', '(%s OR %s)', '(%s OR %s)', '(NOT (%s AND %s))', '(NOT (%s OR %s))']) % (a, b)
        c = rng.choice(scope); r = rng.random()
        if r < .14: return '(%s IS %sNULL)' % (c.ref, rng.choice(['', 'NOT ']))
        if r < .26: return '(%s %sIN (%s))' % (c.ref, rng.choice(['', 'NOT ']), ', '.join([self.literal(c) for _ in range(rng.randint(1, 4))] + ['NULL'] * (rng.random() < .1)))
        if r < .34 and c.kind == 'int' and subqueries: return self.membership(c)
        if r < .42: return '(%s IS %sDISTINCT FROM %s)' % (c.ref, rng.choice(['', 'NOT ']), self.literal(c))
        if r < .54:
            same = [x for x in scope if x.kind == c.kind and x is not c]
            if same: return '(%s %s %s)' % (c.ref, rng.choice(['<', '<=', '>', '<>', '=']), rng.choice(same).ref)
        if r < .68: return '(%s %s %s)' % (self.number(scope), rng.choice(['<', '<=', '>', '>=', '=', '<>']), rng.randint(-5, 60))
        if c.kind == 'text': return self.text_test(c)
        if r < .78: return '(%s BETWEEN %s AND %s)' % (c.ref, self.literal(c), self.literal(c))
        return '(%s %s %s)' % (c.ref, rng.choice(['<', '<=', '>', '>=', '=', '<>', '=']), self.literal(c))
    def text_test(self, c):
        t = self.rng.choice(c.values) if c.values else 'a'
        t = t.replace('%', '').replace('_', '')
        return '(%s %sLIKE %s)' % (c.ref, self.rng.choice(['', 'NOT ']), quote(self.rng.choice([t[:2] + '%', '%' + t[-1:] + '%', t, '%', 'high%']))) if self.rng.random() < .6 else \
            '(%s %s %s)' % (c.ref, self.rng.choice(['=', '<>', '<', '>=']), self.literal(c))
    def membership(self, c):
        rng = self.rng
        table, column = rng.choice([('n', 'y'), ('n', 'y'), ('n', 'y'), ('e', 'id'), ('e', 'z'), ('d', 'y'), ('g', 'q')])
        inner = [x for x in self.columns(table, 'i')]
        where = ' WHERE ' + self.predicate(inner, 0, False) if rng.random() < .3 else ''
        return '(%s %sIN (SELECT i.%s FROM %s i%s))' % (c.ref, rng.choice(['', 'NOT ', 'NOT ']), column, table, where)
    def number(self, scope):
        rng = self.rng
        cs = [c for c in scope if c.kind == 'int']; text = [c for c in scope if c.kind == 'text']
        c = rng.choice(cs); r = rng.random()
        if r < .35: return c.ref
        if r < .5: return '(%s %s %d)' % (c.ref, rng.choice(['+', '*', '-', '%']), rng.choice([2, 3, 7]))
        if r < .6: return '(%s + %s)' % (c.ref, rng.choice(cs).ref)
        if r < .7: return 'coalesce(%s, %d)' % (c.ref, rng.randint(-1, 9))
        test = self.text_test(rng.choice(text)) if text and rng.random() < .6 else self.predicate(scope, 0, False)
        return '(CASE WHEN %s THEN %s ELSE %s END)' % (test, c.ref, rng.choice([rng.choice(cs).ref, '0', 'NULL']))
    # sources
    def filtered(self, table, alias, constant=False):
        """A dimension or a part of it, and its columns, of which one may have to be a constant."""
        rng = self.rng; cs = self.columns(table, alias); r = .6 if constant else rng.random()
        if r < .55: return '%s %s' % (table, alias), cs
        own = self.columns(table, 'i')
        if r < .75:                                       # a constant column, which an outer join makes one with nulls
            c = rng.choice(own); self.constants += [x for x in cs if x.ref[len(alias):] == c.ref[1:]]
            return '(SELECT * FROM %s i WHERE i.%s = %s) %s' % (table, c.ref[2:], self.literal(c), alias), cs
        if r < .92 or table != 'd': return '(SELECT * FROM %s i WHERE %s) %s' % (table, self.predicate(own, 1), alias), cs
        return '(SELECT i.k AS k, max(i.name) AS name, min(i.e) AS e, count(*) AS y FROM %s i GROUP BY i.k) %s' % (table, alias), cs
    def nested(self, alias):
        """A dimension that is a join itself."""
        rng = self.rng
        known = list(self.constants)
        d, dc = self.filtered('d', 'i'); e, ec = self.filtered('e', 'j')
        self.constants = known
        word = rng.choice(['JOIN', 'LEFT JOIN', 'LEFT JOIN'])
        where = ' WHERE ' + self.predicate(dc + ec, 0) if rng.random() < .4 else ''
        body = 'SELECT i.k AS k, i.name AS name, i.y AS y, i.e AS e, j.name AS name2, j.z AS z FROM %s %s %s ON i.e = j.id%s' % (d, word, e, where)
        if rng.random() < .25: body = 'SELECT s.k AS k, max(s.name) AS name, count(s.name2) AS y, count(*) AS e, s.name2 AS name2, min(s.z) AS z FROM (%s) s GROUP BY s.k, s.name2' % body
        cs = [copy.copy(c) for c in dc + ec]
        by = {c.ref[2:] if c.ref.startswith('i.') else c.ref[2:] + '2' * (c.ref == 'j.name'): c for c in cs}
        out = []
        for name in ('k', 'name', 'y', 'e', 'name2', 'z'): c = by[name]; c.ref = '%s.%s' % (alias, name); out.append(c)
        return '(%s) %s' % (body, alias), out
    def source(self, q, most=3):
        """Joins for the query; their columns."""
        rng = self.rng
        f = self.columns('f', 'f'); scope, dims = list(f), []
        if rng.random() < .1: q.base = '(SELECT * FROM f i WHERE %s) f' % self.predicate(self.columns('f', 'i'), 0)
        def join(word, alias, src, on, cols):
            if rng.random() < .12: on += ' AND ' + self.predicate(cols if rng.random() < .5 else cols + scope, 0, False)
            q.joins.append((word, alias, (src, on), '%s %s ON %s' % (word, src, on))); scope.extend(cols); dims.extend(cols)
        word = rng.choices(['JOIN', 'LEFT JOIN', 'RIGHT JOIN', 'FULL JOIN'], [60, 36, 2, 2])[0]
        constant = rng.random() < .15
        if constant: word = 'LEFT JOIN'
        if constant or rng.random() < .7:
            src, cols = self.filtered('d', 'd', constant); join(word, 'd', src, 'f.k = d.k', cols)
            if rng.random() < .7:
                src, more = self.filtered('e', 'e'); join(rng.choice(['JOIN', 'LEFT JOIN', 'LEFT JOIN']), 'e', src, 'd.e = e.id', more)
        else:
            src, cols = self.nested('d'); join(word, 'd', src, 'f.k = d.k', cols)
        if most > 1 and rng.random() < .2:
            key = rng.choice(['f.k = g.k', 'f.k = g.k', 'f.k = g.k AND f.s || \'\' = g.name', 'f.k = g.k AND d.name = g.name'])
            src, more = self.filtered('g', 'g'); join(rng.choice(['JOIN', 'LEFT JOIN']), 'g', src, key, more)
        if rng.random() < .15:                             # one row beside each, or none
            table = rng.choice(['d', 'g']); own = self.columns(table, 'i')
            cols = [copy.copy(c) for c in self.columns(table, 'o') if c.ref in ('o.y', 'o.q', 'o.name')]
            number = cols[0 if cols[0].kind == 'int' else 1].ref[2:]
            where = ' WHERE ' + self.predicate(own, 0, False) if rng.random() < .4 else ''
            join('JOIN', 'o', '(SELECT max(i.%s) AS %s, min(i.name) AS name FROM %s i%s) o' % (number, number, table, where), '1 = 1', cols)
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            q.where.append(self.predicate(rng.choice([scope, dims, dims, f]), rng.choice([0, 0, 0, 1])))
        if rng.random() < .2:
            c = rng.choice([c for c in dims if c.kind == 'int']); q.where.append(self.membership(c))
        if rng.random() < .12:
            p = ' AND ' + self.predicate(self.columns('g', 'i') + f, 0, False) if rng.random() < .6 else ''
            q.where.append('%sEXISTS (SELECT 1 FROM g i WHERE i.k = %s%s)' % (rng.choice(['', 'NOT ']), rng.choice(['f.k', 'd.k']), p))
        return f, dims, scope
    def chain(self, q):
        """A dimension with a dimension of its own, some rows of which are not there and others have nulls: all of both."""
        rng = self.rng
        f, d, e = self.columns('f', 'f'), self.columns('d', 'd'), self.columns('e', 'e')
        for word, alias, on in [(rng.choice(['JOIN', 'JOIN', 'LEFT JOIN']), 'd', 'f.k = d.k'), (rng.choice(['LEFT JOIN', 'LEFT JOIN', 'JOIN']), 'e', 'd.e = e.id')]:
            src = '%s %s' % (alias, alias); q.joins.append((word, alias, (src, on), '%s %s ON %s' % (word, src, on)))
        if rng.random() < .2: q.where.append('(%s NOT IN (SELECT i.y FROM n i))' % rng.choice([c for c in d if c.kind == 'int']).ref)
        elif rng.random() < .2: q.where.append(self.predicate(rng.choice([f, d]), 0))
        return f, d[1:] + e, f + d + e
    def aggregate(self, scope):
        rng = self.rng
        filt = ' FILTER (WHERE %s)' % self.predicate(scope, 0, False) if rng.random() < .25 else ''
        c = rng.choice(scope); r = rng.random()
        if r < .35: return 'count(*)' + filt, 'sum'
        if r < .5: return 'count(%s)%s' % (c.ref, filt), 'sum'
        if r < .7: return 'sum(%s)%s' % (self.number(scope), filt), 'sum'
        f = rng.choice(['min', 'max'])
        return '%s(%s)%s' % (f, c.ref if rng.random() < .6 else self.number(scope), filt), f
    def key(self, scope):
        rng = self.rng; c = rng.choice(scope); r = rng.random()
        if r < .75: return c.ref
        if r < .83: return '(CASE WHEN %s IS NULL THEN 1 ELSE 0 END)' % c.ref
        if c.kind == 'text': return "coalesce(%s, 'none')" % c.ref
        return '(%s %% 3)' % c.ref
    # shapes
    def groups(self, q, keys=None):
        rng = self.rng
        f, dims, scope = self.chain(q) if rng.random() < .5 else self.source(q)
        few = [c for c in dims if c.ref != 'd.k'] + [c for c in f if c.ref in ('f.x', 'f.s', 'f.k')]
        for _ in range(keys if keys is not None else rng.choice([0, 1, 1, 1, 2, 2])):
            k = self.key(rng.choice([dims, dims, dims[-3:], dims[-3:], few]))
            if k not in q.group: q.group.append(k)
        q.select = list(q.group); q.merges = [None] * len(q.group)
        for _ in range(rng.choice([1, 1, 2, 3])):
            a, m = self.aggregate(scope); q.select.append(a); q.merges.append(m)
        if q.group and q.kind == 'group' and rng.random() < .3:
            keys = sorted(q.group, key=lambda k: all(c.ref != k for c in self.constants))
            q.order = ['%s%s%s' % (k, rng.choice([' ASC', ' DESC']), rng.choice(NULLS)) for k in keys]
        if q.group and rng.random() < .15: q.having.append('(count(*) %s %d)' % (rng.choice(['>', '<=', '<>']), rng.choice([0, 5, 100])))
        return q
    def shape_group(self, q): return self.groups(q)
    def shape_again(self, q):
        """Groups of groups, with tests for null."""
        rng = self.rng
        if rng.random() < .2: return self.firsts(q)
        self.groups(q, rng.choice([1, 1, 2, 2, 3]))
        n = len(q.group); k = ['s.o%d' % i for i in range(n)]; a = ['s.o%d' % i for i in range(n, len(q.select))]
        test = lambda: rng.choice(['%s IS NULL', '%s IS NOT NULL', '%s IS NOT NULL']) % rng.choice(k)
        where = ''
        if rng.random() < .6: where = ' WHERE ' + (test() if rng.random() < .4 else '(%s OR %s > %d)' % (test(), rng.choice(k[:0] or ['s.c']), rng.choice([0, 50, 100000])))
        filt = ' FILTER (WHERE %s)' % test() if rng.random() < .5 else ''
        aggs = ['count(*)' + filt] + rng.sample(['sum(s.c)', 'count(%s)' % rng.choice(k), 'max(s.c)', 'sum(CASE WHEN %s THEN s.c ELSE 0 END)' % test(), 'min(%s)' % rng.choice(k)], rng.randint(0, 2))
        group = rng.choice([None, None, '(CASE WHEN %s THEN 1 ELSE 0 END)' % test(), rng.choice(k)])
        q.select.append('count(*)'); q.merges = []
        c = 'o%d' % (len(q.select) - 1)
        s = 'SELECT %s FROM (@@) s%s' % (', '.join('%s AS p%d' % (x, i) for i, x in enumerate(([group] if group else []) + aggs)), where)
        if group: s += ' GROUP BY ' + group
        q.wrap = s.replace('s.c', 's.' + c)
        if rng.random() < .15:                             # as a dimension of a join
            q.wrap = 'SELECT count(*) AS p0, count(%s) AS p1 FROM f z JOIN (@@) s ON z.x = s.%s%s' % (rng.choice(k), c, where.replace('s.c', 's.' + c))
        return q
    def firsts(self, q):
        """The first rows of what is distinct, or of groups, over what is distinct, groups, or windows of them."""
        rng = self.rng; c = rng.choice(['x', 'w', 'k'])    # names stay, for a rule follows columns by their names
        inner, values = rng.choice([('SELECT DISTINCT i.{c} AS {c} FROM f i', ['s.{c}', '-s.{c}', '-s.{c}', 's.{c} % 3']),
                                    ('SELECT i.{c} AS {c}, max(i.v) AS m FROM f i GROUP BY i.{c}', ['s.{c}', '-s.{c}', 's.m', '-s.m']),
                                    ('SELECT i.{c} AS {c}, count(*) AS m FROM f i GROUP BY i.{c}', ['s.{c}', '-s.{c}', 's.m', '-s.m'])])
        if rng.random() < .3: inner, values = 'SELECT j.{c} AS {c}, %s AS m FROM (%s) j' % (rng.choice(['count(*) OVER ()', 'sum(j.{c}) OVER (ORDER BY j.{c} NULLS LAST)']), inner), ['s.{c}', '-s.m', 's.m']
        form = rng.choice(['SELECT DISTINCT {v} AS {c} FROM ({i}) s'] * 2 + ['SELECT {v} AS {c} FROM ({i}) s', 'SELECT max({v}) AS {c} FROM ({i}) s GROUP BY -s.{c}'])
        q.raw = form.replace('{v}', rng.choice(values)).replace('{i}', inner).replace('{c}', c)
        q.order = ['%s%s%s' % (c, rng.choice([' ASC', ' DESC']), rng.choice(NULLS))]; q.limit = rng.choice([1, 2, 5])
        return q
    def shape_rows(self, q):
        rng = self.rng
        f, dims, scope = self.source(q, 1)
        q.select = ['f.v'] + [c.ref for c in rng.sample(dims, min(3, len(dims)))]
        if rng.random() < .4: q.select.append(self.number(scope))
        q.merges = []
        if rng.random() < .2: q.distinct = True; q.select[0] = 'f.x'
        elif rng.random() < .4:
            q.order = ['%s%s%s' % (c.ref, rng.choice([' ASC', ' DESC']), rng.choice(NULLS)) for c in self.first(rng.sample(dims, rng.choice([1, 2])))]
            self.finish_order(q, dims)
            if rng.random() < .5: q.limit = rng.choice([0, 1, 5, 50, 1000])
        return q
    def first(self, columns):
        """These, and mostly one before them that a filter leaves a single value, which an outer join makes a single one and null."""
        if not self.constants or self.rng.random() < .3: return columns
        c = self.rng.choice(self.constants); return [c] + [x for x in columns if x.ref != c.ref]
    def finish_order(self, q, dims):
        """Makes the order of rows total: rows that are equal in all of it are equal."""
        done = ' '.join(q.order)
        for x in q.select:
            if x not in done: q.order.append(x + ' ASC NULLS LAST')
    def frame(self, ends=7):
        """A frame of rows, or none; with few `ends` it sees no more than some rows ahead."""
        bounds = ['UNBOUNDED PRECEDING', '3 PRECEDING', '1 PRECEDING', 'CURRENT ROW', '1 FOLLOWING', '4 FOLLOWING', 'UNBOUNDED FOLLOWING'][:ends]
        a, b = sorted(self.rng.sample(range(len(bounds)), 2))
        return ' ROWS BETWEEN %s AND %s' % (bounds[a], bounds[b]) if self.rng.random() < .8 or ends < 7 else ''
    def window_of(self, value, order, parts, ends):
        """A window function of rows whose order is total."""
        rng = self.rng; part = rng.choice(parts); r = rng.random()
        if r < .15 and ends == 7: return 'count(*) OVER (%s)' % part.strip()
        if r < .25: return '%s OVER (%sORDER BY %s)' % (rng.choice(['row_number()', 'rank()']), part, order)
        if r < .5:
            name, n = rng.choice([('lag', 2), ('lag', 0), ('lag', -1), ('lag', -3), ('lead', 1), ('lead', 1), ('lead', 4)])
            return '%s(%s, %d) OVER (%sORDER BY %s%s)' % (name, value, n, part, order, self.frame(ends))
        return '%s(%s) OVER (%sORDER BY %s%s)' % (rng.choice(['sum', 'sum', 'count', 'min', 'max', 'first_value', 'last_value']), value, part, order, self.frame(ends))
    def windows_of_t(self, q):
        """Windows of the sorted table, of windows or of parts, and the first rows of an order of them."""
        rng = self.rng
        part = self.sorted_part() if rng.random() < .25 else ''
        orders = ['ts, x', 'x, ts', 'x DESC, ts'] + ([] if part or self.tied() else ['ts', 'ts DESC', 'ts', 'ts'])
        order = rng.choice(orders); alike = rng.random() < .4
        some = lambda: order if alike or rng.random() < .7 else rng.choice(orders)
        style = ([''], 6) if alike else (['', '', 'PARTITION BY k ', 'PARTITION BY k % 3 '], 7)
        where = lambda: ' WHERE ' + self.predicate(self.columns('t', 't'), 0, False) if rng.random() < .3 else ''
        table = '(%s) t' % part if part else 't%s' % where()
        values = ['ts', 'x', 'k']
        for i in range(rng.choice([1, 1, 2, 2, 3])):
            table = '(SELECT ts, x, k, %s AS w FROM %s) t' % (self.window_of(rng.choice(values), some(), *style), table)
            values = ['w', 'w', 'x']
            if rng.random() < .25: table += ' WHERE ' + rng.choice(['w > 5', 'w IS NOT NULL', 'k > 2', 'w < 3000 AND x > 20'])
        q.raw = 'SELECT ts AS o0, x AS o1, w AS o2 FROM %s' % table
        if rng.random() < .9: q.order = [x + ' NULLS LAST' for x in some().split(', ')]; q.limit = rng.choice([1, 2, 3, 10, 100])
        return q
    def shape_window(self, q):
        rng = self.rng
        if rng.random() < .5: return self.windows_of_t(q)
        f, dims, scope = self.source(q, 1)
        part = self.first([rng.choice(dims)])[0].ref; other = rng.choice(dims).ref
        q.where.append('f.v < %d' % rng.choice([30, 200, 1000]))
        rest = ', '.join(c.ref + ' ASC NULLS LAST' for c in f if c.ref != 'f.v') if False else ''
        total = 'f.v ASC NULLS LAST, ' + ', '.join(c.ref + ' ASC NULLS LAST' for c in dims)
        w = rng.choice(['count(*) OVER (PARTITION BY %s)' % part, 'count(*) OVER (PARTITION BY %s, %s)' % (part, other), 'sum(f.v) OVER (PARTITION BY %s)' % part,
                        'rank() OVER (PARTITION BY %s ORDER BY f.v ASC NULLS LAST)' % part, 'rank() OVER (ORDER BY %s DESC NULLS LAST, f.v ASC NULLS LAST)' % part,
                        'max(f.v) OVER (PARTITION BY %s ORDER BY f.v ASC NULLS LAST)' % part, 'count(*) OVER (ORDER BY %s ASC NULLS FIRST)' % part])
        q.select = [part, 'f.v', w]
        if rng.random() < .5: q.order = ['%s%s%s' % (part, rng.choice([' ASC', ' DESC']), rng.choice(NULLS)), 'f.v ASC NULLS LAST']; q.order.append('3 ASC NULLS LAST')
        return q
    def sorted_part(self, limit=None):
        """Rows of `t` that a limit takes: which, does not depend on ties."""
        rng = self.rng
        first, then = rng.choice([('ts', 'x')] * 5 + [('x', 'ts'), ('k', 'x')])
        order = 't.%s %s NULLS LAST, t.%s NULLS LAST' % (first, rng.choice(['ASC', 'ASC', 'DESC']), then) if first != 'ts' or self.tied() else 't.ts %s NULLS LAST' % rng.choice(['ASC', 'ASC', 'ASC', 'DESC'])
        where = ' WHERE ' + self.predicate(self.columns('t', 't'), 0, False) if rng.random() < .25 else ''
        # the column of the order may be none of the part's, and may be computed
        columns, table = 't.ts AS ts, t.x AS x, t.k AS k', 't'
        whole = '%s'
        if rng.random() < .2: columns, whole = 't.k + 1 AS y, t.x AS z, t.k AS k', 'SELECT p.y AS ts, p.z AS x, p.k AS k FROM (%s) p'
        elif rng.random() < .2: table, order = '(SELECT ts, x, k, -ts AS y FROM t) t', order.replace('t.ts', 't.y')
        end = ' LIMIT %d' % (limit or rng.choice([1, 10, 100, 1000, 3000])) + rng.choice(['', '', '', ' OFFSET 5'])
        if not limit and rng.random() < .2: end = OFFSET + ' %d' % rng.choice([0, 5, 2990])
        return whole % ('SELECT %s FROM %s%s ORDER BY %s%s' % (columns, table, where, order, end))
    def tied(self):
        ts = self.tables['t'].data['ts'].to_pylist(); return len(set(ts)) < len(ts)
    def shape_limits(self, q):
        """Limits below filters, sorts, joins and aggregates."""
        rng = self.rng; part = self.sorted_part(); r = rng.random(); cs = self.columns('t', 's')
        if r < .2:                                         # the first rows of joins and of parts
            tables = [rng.choice(['t', 't', '(%s)' % part, '(%s)' % self.sorted_part()]) for _ in range(2)]
            column = rng.choice(['ts', 'x', 'k'])
            where = rng.choice(['s.x %sIN (SELECT i.%s FROM %s i WHERE i.%s < %d)' % (rng.choice(['', 'NOT ', 'NOT ']), column, tables[1], rng.choice(['ts', 'x', 'k']), rng.choice([5, 50, 2000])),
                                '%sEXISTS (SELECT 1 FROM d i WHERE i.k = s.%s)' % (rng.choice(['', 'NOT ']), column), self.predicate(cs, 1)])
            q.raw = 'SELECT s.ts AS o0, s.x AS o1, s.k AS o2 FROM %s s WHERE %s' % (tables[0], where)
            q.order = rng.choice([['s.ts', 's.x', 's.k'], ['s.ts', 's.x', 's.k'], ['s.x', 's.ts', 's.k']]); q.order = [x + ' ASC NULLS LAST' for x in q.order]; q.limit = rng.choice([1, 3, 20])
            return q
        r = rng.random()
        if r < .35:
            q.raw = 'SELECT s.ts AS o0, s.x AS o1, s.k AS o2 FROM (%s) s' % part
            q.order = ['s.x %s NULLS LAST' % rng.choice(['ASC', 'DESC']), 's.ts ASC NULLS LAST', 's.k ASC NULLS LAST']; q.limit = rng.choice([1, 3, 20])
        elif r < .6: q.raw = 'SELECT count(*) AS o0, min(s.x) AS o1, max(d.k) AS o2 FROM %s d JOIN (%s) s ON s.k = d.k' % (rng.choice(['d', '(SELECT * FROM d i WHERE i.k > 2)', '(SELECT * FROM d i WHERE i.y = 2)']), part)
        elif r < .75: q.raw = 'SELECT s.ts AS o0, s.x AS o1, d.name AS o2 FROM (%s) s %s %s d ON s.k = d.k' % (part, rng.choice(['JOIN', 'LEFT JOIN']), '(SELECT * FROM d i WHERE %s)' % self.predicate(self.columns('d', 'i'), 0) if rng.random() < .5 else 'd')
        elif r < .9: q.raw = 'SELECT s.ts AS o0, s.x AS o1 FROM (%s) s WHERE %s' % (part, self.predicate(cs, 1))
        else: q.raw = 'SELECT s.k AS o0, count(*) AS o1, max(s.x) AS o2 FROM (%s) s WHERE %s GROUP BY s.k' % (part, self.predicate(cs, 0))
        if not q.order and rng.random() < .2: q.raw = 'SELECT * FROM (%s) y UNION ALL SELECT * FROM (%s) z' % (q.raw, q.raw)
        return q
    def shape_recursive(self, q):
        rng = self.rng
        start = rng.choice(['SELECT CAST(1 AS BIGINT) AS id, CAST(0 AS BIGINT) AS depth', 'SELECT e.parent AS id, CAST(0 AS BIGINT) AS depth FROM edges e WHERE e.parent < 3', 'SELECT count(*) AS id, CAST(0 AS BIGINT) AS depth FROM f JOIN d ON f.k = d.k WHERE f.v < 3'])
        step = rng.choice(['SELECT e.child, r.depth + 1 FROM edges e JOIN r ON e.parent = r.id', 'SELECT e.child, r.depth + 1 FROM r JOIN edges e ON e.parent = r.id',
                           'SELECT e.child, r.depth + 1 FROM edges e JOIN r ON e.parent = r.id JOIN d ON d.k = e.child', 'SELECT r.id + 1, r.depth + 1 FROM r JOIN d ON r.id = d.k'])
        if 'edges' not in step or 'WHERE' not in step: step += ' WHERE r.depth < %d' % rng.choice([3, 5])
        end = rng.choice(['SELECT r.id AS o0, r.depth AS o1 FROM r', 'SELECT r.id AS o0, count(*) AS o1 FROM r GROUP BY r.id', 'SELECT d.name AS o0, count(*) AS o1, max(r.depth) AS o2 FROM r JOIN d ON d.k = r.id GROUP BY d.name',
                          'SELECT d.name AS o0, count(*) AS o1 FROM f JOIN d ON f.k = d.k WHERE f.k IN (SELECT r.id FROM r) GROUP BY d.name'])
        q.raw = 'WITH RECURSIVE r AS (%s UNION ALL %s) %s' % (start, step, end)
        return q
    def shape_long_or(self, q):
        rng = self.rng; n = rng.choices([40, 300, 1200], [12, 6, 1])[0]    # long ones take seconds to plan
        terms = ['(f.v = %d AND f.s = %s)' % (rng.randint(0, 3000), quote(rng.choice(NAMES))) if rng.random() < .9 else '(f.k = %d AND f.w > %d)' % (rng.randint(0, 9), rng.randint(0, 50)) for _ in range(n)]
        q.select, q.where = ['count(*)', 'sum(f.v)'], ['(%s)' % ' OR '.join(terms)]
        def tree(terms):                                   # SQLite takes no deep expressions
            return terms[0] if len(terms) == 1 else '(%s OR %s)' % (tree(terms[:len(terms) // 2]), tree(terms[len(terms) // 2:]))
        q.same = (q.where[0], tree(terms))
        if rng.random() < .5: q.select, q.merges = ['f.v', 'f.s'], []
        else: q.merges = ['sum', 'sum']
        return q

    def query(self, kind):
        q = Query(); q.kind = kind; self.constants = []
        return getattr(self, 'shape_' + kind)(q)

SHAPES = {'group': 30, 'again': 24, 'rows': 16, 'window': 14, 'limits': 18, 'recursive': 3, 'long_or': 2}

# ---------------------------------------------------------------- answers

def answer_of_sqlite(db, sql, seconds=20):
    """The rows, or None if SQLite has none in time. SQLite knows no OFFSET without LIMIT, and no negative lag."""
    sql = re.sub(r'\blag\((\w+), -(\d+)\)', r'lead(\1, \2)', sql.replace(OFFSET, ' LIMIT -1 OFFSET'))
    end = time.time() + seconds
    db.set_progress_handler(lambda: time.time() > end, 100000)
    try: return [tuple(r) for r in db.execute(sql).fetchall()]
    except sqlite3.Error as e:
        STATS['shapes: SQLite fails'] += 1; STATS['shapes: SQLite: ' + str(e)[:60]] += 1; return None

def answer_of_file(path):
    """The rows of a Parquet file; none, where nothing was written."""
    if not os.path.exists(path): return []
    t = pq.read_table(path)
    columns = [c.to_pylist() for c in t.columns]
    return [tuple(int(v) if isinstance(v, bool) else v for v in r) for r in zip(*columns)]

def order_of(rows): return sorted(rows, key=lambda r: tuple((v is None, str(type(v)), v if v is not None else 0) for v in r))

def difference(expected, rows, ordered):
    """None, or what differs."""
    if ordered and expected == rows: return None
    a, b = order_of(expected), order_of(rows)
    if a == b: return 'rows are in another order: %s .. instead of %s ..' % (rows[:4], expected[:4]) if ordered else None
    if len(a) != len(b): head = '%d rows, not %d' % (len(b), len(a))
    else: head = '%d rows' % len(a)
    wrong, missing = [r for r in b if r not in a][:4], [r for r in a if r not in b][:4]
    return '%s; not right: %s; missing: %s' % (head, wrong, missing)

class ShapeSet:
    def __init__(self, dir, seed, args):
        self.dir, self.seed, self.args = dir, seed, args
        self.rng, g = random.Random(seed), np.random.default_rng(seed)
        self.tables = make_tables(self.rng, g)
        self.order = self.rng.choice([0, 1, 2 + seed % 1000, 2 + seed % 1000])    # of threads on the emulator
        self.settings = []
        rng = self.rng
        if rng.random() < .5: self.settings.append('SET datafusion.execution.target_partitions = %d' % rng.choice([1, 2, 4]))
        if rng.random() < .2: self.settings.append('SET datafusion.execution.batch_size = %d' % rng.choice([64, 1000]))
        for name, value in (('prefer_hash_join', 'false'), ('prefer_existing_sort', 'true'), ('repartition_sorts', 'false')):
            if rng.random() < .15: self.settings.append('SET datafusion.optimizer.%s = %s' % (name, value))
        self.cpu = ["SET vectile.gpu = 'off'", 'SET vectile.fuse = %s' % rng.choice(['true', 'true', 'false'])]
        self.gpu = ["SET vectile.gpu = 'on'", '--gpu-build-from-rows=%d' % rng.choice([0, 0, 0, 1000, 1 << 20]), kernels_of(seed, args)]
    def write(self, tables=None):
        """Writes the tables and returns what makes them known to a session, or an error."""
        tables = tables or self.tables
        shutil.rmtree(self.dir, ignore_errors=True); mk(self.dir, 'src'); mk(self.dir, 'vec')
        stmts, self.known, self.plain = [], [], []
        types = {'int64': 'BIGINT', 'int32': 'INT', 'string': 'VARCHAR'}
        for t in tables:
            a, b = os.path.join(self.dir, 'src', t.name + '.parquet'), os.path.join(self.dir, 'vec', t.name + '.vectile')
            pq.write_table(t.data, a, write_statistics=False)
            n = -(-t.data.num_rows // t.files)
            if t.files > 1: b = mk(self.dir, 'vec', t.name) + '/'
            for i in range(t.files):
                rows = "'%s'" % a
                if t.files > 1: rows += ' LIMIT %d OFFSET %d' % (n, n * i)
                stmts.append(('t%s%d' % (t.name, i), "COPY (SELECT * FROM %s) TO '%s' STORED AS VECTILE OPTIONS (row_group_rows %d)" % (rows, b if t.files == 1 else '%s%d.vectile' % (b, i), t.row_group_rows), 'show'))
            columns = ' (%s)' % ', '.join('%s %s' % (f.name, types[str(f.type)]) for f in t.data.schema) if t.order else ''
            self.known.append("CREATE EXTERNAL TABLE %s%s STORED AS VECTILE%s LOCATION '%s'" % (t.name, columns, ' WITH ORDER (%s)' % t.order if t.order else '', b))
            self.plain.append("CREATE TABLE %s AS SELECT * FROM '%s'" % (t.name, a))
        r = run_many(self.args.bin, [], ['SET datafusion.execution.target_partitions = 1', "SET vectile.gpu = 'off'"], stmts, mk(self.dir, 'w'), self.args.hang)
        for id, v in r.items():
            if v[0] != 'ok': return '%s: %s' % (id, shorten(v[1]))
        self.db = sqlite3.connect(':memory:')
        self.db.execute('PRAGMA case_sensitive_like = ON')
        for t in tables:
            self.db.execute('CREATE TABLE %s (%s)' % (t.name, ', '.join('%s %s' % (f.name, 'TEXT' if pa.types.is_string(f.type) else 'INTEGER') for f in t.data.schema)))
            self.db.executemany('INSERT INTO %s VALUES (%s)' % (t.name, ', '.join('?' * t.data.num_columns)), list(zip(*[c.to_pylist() for c in t.data.columns])) if t.data.num_rows else [])
        return None
    def has_rows(self, q):
        """Whether a few rows pass the joins and filters of a query, but for NOT IN, which no row may pass."""
        if q.raw: return True
        p = copy.copy(q); p.select, p.distinct, p.group, p.having, p.order, p.limit, p.wrap = ['1'], False, [], [], [], None, None
        p.where = [x for x in p.where if 'NOT IN (SELECT' not in x]
        rows = answer_of_sqlite(self.db, p.sql().replace(*q.same) + ' LIMIT 10' if q.same else p.sql() + ' LIMIT 10', 5)
        return rows is not None and len(rows) == 10
    def expected(self, q, sql=None):
        s = sql or q.sql()
        return answer_of_sqlite(self.db, s.replace(*q.same) if q.same else s)

SIDES = ('cpu', 'gpu')

def ask(worker, s, side, stmts, dir, plain=False, hang=None):
    a = worker.args
    os.environ['EMULATED_SEED'] = str(s.order)
    if plain and a.plain: return run_many(a.plain, [], s.settings + s.plain, stmts, mk(dir), hang or a.hang, ['--plain'])
    settings = (s.gpu if side == 'gpu' else ["SET vectile.gpu = 'off'"] if plain else s.cpu) + s.settings + (s.plain if plain else s.known)
    return run_many(a.subject if side == 'gpu' else a.bin, [], settings, stmts, mk(dir), hang or a.hang)

def verdict(s, q, expected, result, file, ordered):
    """None, or (signature, text)."""
    if result is None: return None
    if result[0] in ('crash', 'hang'): return result[0], shorten(result[1], 1500)
    if result[0] == 'error': return 'error-' + kind_of(result[1]), shorten(result[1], 600)
    try: d = difference(expected, answer_of_file(file), ordered)
    except Exception as e: return 'compare-failed', repr(e)
    return ('order' if d.startswith('rows are') else 'values', d) if d else None

def is_shown_in_order(worker, s, side, c):
    """Whether a query with an outer join prints its rows in order. Its file may have another one: see "Files in the order of
    a constant" in docs/known-differences.md. Null and empty text print alike."""
    if not re.search(r'\b(LEFT|RIGHT|FULL) JOIN\b', c['sql']): return False
    r = ask(worker, s, side, [('x', c['sql'], 'show')], mk(s.dir, 'shown'))['x']
    if r[0] != 'ok': return False
    rows = list(csv.reader(io.StringIO(r[1].strip('\n'))))[1:-1]       # between its header and the next one
    return rows == [['' if v is None else str(v) for v in x] for x in c['expected']]

def run_set(worker, seed, focus):
    from metamorphic import counted, variants
    s = ShapeSet(os.path.join(worker.work, 'shapes'), seed, worker.args)
    error = s.write()
    if error: worker.finding_of_text('shapes-convert', seed, error, s); return
    rng = s.rng; maker = Maker(rng, s.tables)
    kinds = {k: w for k, w in SHAPES.items() if not focus or k in focus} or SHAPES
    cases = []                                             # (id, name, query, sql, setup, expected, ordered)
    sides = SIDES if worker.args.mode == 'gpu' else SIDES[:1]
    chosen = {side: [] for side in sides}
    for i in range(worker.args.shape_queries):
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        for _ in range(12):                                # most queries are of some rows
            q = maker.query(kind)
            if rng.random() < .05 or s.has_rows(q): break
        expected = s.expected(q)
        if expected is None or len(expected) > 200000: continue
        name = 'q%d' % i
        case = dict(id=name, name='', q=q, sql=q.sql(), setup=[], expected=expected, ordered=q.ordered)
        cases.append(case)
        scope = maker.columns('f', 'f') + [c for j in q.joins for c in ([x for x in maker.columns(j[1], j[1])] if j[2][0] == '%s %s' % (j[1], j[1]) else [])]
        p = maker.predicate(scope, rng.choice([0, 1]))
        own = variants(q, p, rng, os.path.join(s.dir, 'vec'))
        extra = []
        for side in sides:
            chosen[side].append(case)
            for kind, setup, sql in rng.sample(own, min(len(own), int(rng.random() < .4) if side == 'gpu' else 2)):
                extra.append(case2 := dict(id='%s%s%s%d' % (name, kind, side, len(extra)), name=kind, q=q, sql=sql, setup=[x.replace('.vectile', side + '.vectile') for x in setup], expected=expected, ordered=False))
                chosen[side].append(case2)
        if rng.random() < .25 and (both := counted(q, p)):
            n = s.expected(q, both[0])
            if n is not None:
                for j, sql in enumerate(both): extra.append(c := dict(id='%snorec%d' % (name, j), name='norec', q=q, sql=sql, setup=[], expected=n, ordered=False)); [chosen[side].append(c) for side in sides]
        cases += extra
    answers = {}
    for side in sides:
        dir = mk(s.dir, side); t0 = time.time()
        stmts = [(c['id'], c['sql'], ('copy', c['setup'])) for c in chosen[side]]
        if side == 'gpu': stmts += [('explain' + c['id'], 'EXPLAIN ' + c['sql'], 'show') for c in chosen[side] if not c['name']]
        answers[side] = ask(worker, s, side, stmts, dir)
        STATS['shapes: seconds ' + side] += int(time.time() - t0)
    for c in chosen.get('gpu', []):
        plan = answers['gpu'].get('explain' + c['id'])
        if plan and plan[0] == 'ok': STATS['shape %s: plans' % c['q'].kind] += 1; STATS['shape %s: plans on the GPU' % c['q'].kind] += 'FusedAggregateExec' in plan[1] or 'gpu=' in plan[1]
    STATS['shape sets'] += 1
    reported = set()
    for c in cases:
        q = c['q']; found = {}
        for side in sides:
            if c not in chosen[side]: continue
            STATS['shapes: %s answers' % side] += 1
            v = verdict(s, q, c['expected'], answers[side].get(c['id']), os.path.join(s.dir, side, 'res', c['id'] + '.parquet'), c['ordered'])
            if v and v[0] == 'order' and is_shown_in_order(worker, s, side, c): STATS['shapes: only files are in another order'] += 1; v = None
            if v and (id(q), side) not in reported: found[side] = v; reported.add((id(q), side))
        if not found: worker.shapes['shape ' + q.kind] += 1; continue
        report(worker, s, seed, c, found)

def report(worker, s, seed, c, found):
    """Says what a wrong answer is of, and makes its query smaller."""
    q = c['q']; side = 'gpu' if 'gpu' in found else 'cpu'; sig, text = found[side]
    dir = mk(s.dir, 'again')
    if 'cpu' not in found:                                 # a variant may have been asked on the other side alone
        r = ask(worker, s, 'cpu', [('x', c['sql'], ('copy', c['setup']))], dir)['x']
        v = verdict(s, q, c['expected'], r, os.path.join(dir, 'res', 'x.parquet'), c['ordered'])
        if v: found['cpu'] = v
    if 'cpu' in found:                                     # is it DataFusion's own?
        r = ask(worker, s, 'cpu', [('x', c['sql'], ('copy', c['setup']))], mk(dir, 'plain'), plain=True)['x']
        plain = verdict(s, q, c['expected'], r, os.path.join(dir, 'plain', 'res', 'x.parquet'), c['ordered'])
        if plain and plain[0].startswith('error') and plain[0] == found['cpu'][0] and plain[0] in ('error-plan', 'error-notimpl', 'error-overflow'):
            STATS['shapes: not planned'] += 1
            if 'gpu' not in found or found['gpu'][0] == plain[0]: return
        rows = ('values', 'order')                         # it fails alike, or has wrong rows as well
        if plain:
            cpu, gpu = found['cpu'][0], found.get('gpu', found['cpu'])[0]
            both_fail = cpu.startswith('error') and gpu.startswith('error')
            if (cpu == gpu or both_fail) and (cpu == plain[0] or cpu in rows and plain[0] in rows or cpu.startswith('error') and plain[0].startswith('error')):
                worker.sigs["DataFusion's own: %s %s %s" % (q.kind, c['name'], plain[0])] += 1
                worker.say("DATAFUSION'S OWN", seed, q.kind, c['name'], plain, c['sql'][:600]); return
    full = '%s %s%s on %s' % (sig, q.kind, '/' + c['name'] if c['name'] else '', '+'.join(found))
    worker.sigs[full] += 1
    worker.say('FINDING', full, 'set', seed, text[:300].replace('\n', ' '), '|', c['sql'][:1500])
    if worker.sigs[full] > worker.args.keep: return
    small, small_text = q, text
    if not c['name'] and not q.raw:
        end = time.time() + worker.args.shrink; changed = True
        while changed and time.time() < end:
            changed = False
            for k in small.shrinks():
                if time.time() > end: break
                try: e = s.expected(k)
                except Exception: continue
                if e is None: continue
                r = ask(worker, s, side, [('x', k.sql(), 'copy')], dir)['x']
                v = verdict(s, k, e, r, os.path.join(dir, 'res', 'x.parquet'), k.ordered)
                if v and v[0] == sig: small, small_text, changed = k, v[1], True; break
    lines = ['EMULATED_SEED=%d' % s.order, 'wrong on: %s' % ', '.join('%s (%s)' % x for x in ((k, v[0]) for k, v in found.items())), text]
    if small is not q: lines += ['', 'smaller:', small.sql() + ';', small_text]
    worker.finding_of_text(full, seed, '\n'.join(lines), s, sql=c['sql'], setup=c['setup'], side=side)
